"""Reading of a comparison of several test sets, systems and seeds from a YAML file."""

import base64
import contextlib
import glob
import os
from collections.abc import Iterable
from pathlib import Path
from sys import float_info
from typing import Annotated, Any

import msgspec

from posnet_eval.inputs.plan import SETTINGS, Plan, TestSet, default_baselines, language_pair, metric_names
from posnet_fairseq.shared.errors import UsageError, about, called_from_python
from posnet_fairseq.shared.files import read_small
from posnet_fairseq.shared.schema import PlainLoader, Written, convert, read_yaml

Name = str | int | float  # YAML reads 2014 as a number
Names = Name | list[Name]
FilePaths = str | list[str]
Finite = Annotated[float, msgspec.Meta(ge=-float_info.max, le=float_info.max)]
_NAMES = ("systems", "test_sets", "metrics", "baselines", "notes")  # keys of names, which are read as they are written
_PICTURES = {".png": "png", ".svg": "svg+xml"}


class _TestSet(msgspec.Struct, forbid_unknown_fields=True):
    outputs: str | dict[str, FilePaths]
    languages: str | None = None
    source: str | None = None
    reference: FilePaths = []
    test_set: Name = ""
    groups: str | None = None


class _Comparison(msgspec.Struct, forbid_unknown_fields=True):
    systems: list[Name] | dict[str, Name | None]
    test_sets: Annotated[dict[str, _TestSet], msgspec.Meta(min_length=1)]
    metrics: Names | None = None
    baselines: Names | None = None
    columns: dict[str, dict[str, str | int | Finite]] = {}
    notes: Names = []
    pictures: dict[str, str] = {}
    test: str | None = None
    resamples: int | None = None
    trials: int | None = None
    seed: int | None = None
    lowercase: bool | None = None
    tokenize: str | None = None
    multi_reference: str | None = None
    bleurt_model: str | None = None
    comet_model: str | None = None
    comet_kiwi_model: str | None = None
    comet_encoder: str | None = None


def read_plan(path: Path) -> Plan:
    """Return the comparison that a file describes; paths in it are relative to its folder."""
    entries = read_yaml(path, Any, PlainLoader)
    with about(path):
        if isinstance(entries, dict):
            entries = {key: _plain(value, key in _NAMES) for key, value in _with_text_keys(entries).items()}
    content: _Comparison = convert(entries, _Comparison, path)
    with called_from_python(), about(path):  # keys have the names of arguments
        return _plan(content, Path(path).parent)


def _plain(content: Any, has_names: bool) -> Any:
    """Return content with texts as keys, and numbers that are written as Python would not as texts or numbers."""
    if isinstance(content, dict):
        return {key: _plain(value, has_names) for key, value in _with_text_keys(content).items()}
    if isinstance(content, list):
        return [_plain(value, has_names) for value in content]
    return (str(content) if has_names else content.number) if isinstance(content, Written) else content


def _with_text_keys(entries: dict[Any, Any]) -> dict[str, Any]:
    if odd := [key for key in entries if key is None or isinstance(key, bool)]:
        raise UsageError(
            f'YAML reads a key as {odd[0]}, such as no, yes, off, on, null and ~. Put it in quotes, as "no".'
        )
    result = {str(key): value for key, value in entries.items()}
    if len(result) < len(entries):
        raise UsageError("a key is there twice, as a number and as text. Give each a name of its own.")
    return result


def _plan(content: _Comparison, folder: Path) -> Plan:
    listed = content.systems
    labels = listed if isinstance(listed, dict) else dict.fromkeys(map(str, listed))
    if len(labels) < len(listed):
        raise UsageError("a system is there twice.")
    systems = {name: name if label is None else str(label) for name, label in labels.items()}
    for facts in content.columns.values():
        _check_known(facts, systems)
    given = {name: getattr(content, name) for name in ("baselines", *SETTINGS)}
    settings = {name: value for name, value in given.items() if value is not None}
    if "metrics" in settings:
        settings["metrics"] = metric_names(",".join(map(str, _listed(settings["metrics"]))))
    if "baselines" in settings:
        settings["baselines"] = tuple(map(str, _listed(settings["baselines"])))
    return Plan(
        systems=systems,
        test_sets=tuple(_test_set(name, one, systems, folder) for name, one in content.test_sets.items()),
        columns=content.columns,
        notes=tuple(map(str, _listed(content.notes))),
        pictures={title: _picture(_file(name, folder)) for title, name in content.pictures.items()},
        **{"baselines": default_baselines(systems), **settings},
    )


def _test_set(name: str, content: _TestSet, systems: Iterable[str], folder: Path) -> TestSet:
    outputs = content.outputs
    if isinstance(outputs, str):
        outputs = _matching(outputs, systems, folder)
    else:
        _check_known(outputs, systems)
    return TestSet(
        name=name,
        languages=language_pair(content.languages),
        source=None if content.source is None else _file(content.source, folder),
        references=_files(content.reference, folder),
        sacrebleu_name=str(content.test_set),
        outputs={system: _files(paths, folder) for system, paths in outputs.items()},
        groups=None if content.groups is None else _file(content.groups, folder),
    )


def _matching(pattern: str, systems: Iterable[str], folder: Path) -> dict[str, FilePaths]:
    """Return the files that match a pattern with the name of each system; * and ? match several runs."""
    outputs: dict[str, FilePaths] = {}
    owners: dict[str, str] = {}
    _file(pattern, folder)
    for system in systems:
        found = sorted(glob.glob(pattern.replace("{system}", glob.escape(system)), root_dir=folder))
        for path in found:
            if owners.setdefault(path, system) != system:
                raise UsageError(
                    f"the pattern {pattern!r} takes {path} for a run of {owners[path]} and of {system}. Make it "
                    "narrower, as with s[0-9]* for seeds."
                )
        outputs[system] = found or pattern.replace("{system}", system)
    return outputs


def _picture(path: Path) -> str:
    """Return a picture as a data URI, so that a page with it needs no other file."""
    if path.suffix not in _PICTURES:
        raise UsageError(f"pictures: {path} is neither a .png nor an .svg.")
    return f"data:image/{_PICTURES[path.suffix]};base64,{base64.b64encode(read_small(path)).decode('ascii')}"


def _files(paths: FilePaths, folder: Path) -> tuple[Path, ...]:
    return tuple(_file(path, folder) for path in _listed(paths))


def _file(path: str, folder: Path) -> Path:
    with contextlib.suppress(UnicodeEncodeError):  # half of a surrogate pair
        if path and b"\0" not in os.fsencode(path):
            return folder / path
    raise UsageError(f"{path!r} is no path.")


def _check_known(names: Iterable[str], systems: Iterable[str]) -> None:
    if unknown := [name for name in names if name not in systems]:
        raise UsageError(f"{', '.join(unknown)} not among the systems.")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
