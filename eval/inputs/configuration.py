"""Reading of a comparison of several test sets, systems and seeds from a YAML file."""

import base64
import glob
from collections.abc import Iterable
from pathlib import Path
from sys import float_info
from typing import Annotated, Any, NoReturn

import msgspec

from posnet_eval.inputs.plan import SETTINGS, Plan, TestSet, default_baselines, language_pair
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import read_small
from posnet_fairseq.shared.schema import PlainLoader, convert, read_yaml

Name = str | int | float  # YAML reads 2014 as a number
Names = Name | list[Name]
FilePaths = str | list[str]
Finite = Annotated[float, msgspec.Meta(ge=-float_info.max, le=float_info.max)]
_PICTURES = {".png": "png", ".svg": "svg+xml"}


class _TestSet(msgspec.Struct, forbid_unknown_fields=True):
    outputs: str | dict[str, FilePaths]
    languages: str | None = None
    source: str | None = None
    reference: FilePaths = []
    test_set: Name = ""


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
    bleurt_model: str | None = None
    comet_model: str | None = None
    comet_encoder: str | None = None


def read_plan(path: Path) -> Plan:
    """Return the comparison that a file describes; paths in it are relative to its folder."""
    content: _Comparison = convert(_with_text_keys(read_yaml(path, Any, PlainLoader)), _Comparison, path)
    return _Reader(Path(path), content).plan()


def _with_text_keys(content: Any) -> Any:
    if isinstance(content, dict):
        return {str(key): _with_text_keys(value) for key, value in content.items()}
    return content


class _Reader:
    """Turns the content of a file into a plan; every error names the file."""

    def __init__(self, path: Path, content: _Comparison) -> None:
        self._path, self._content = path, content
        given = content.systems
        labels = given if isinstance(given, dict) else dict.fromkeys(map(str, given))
        if len(labels) < len(given):
            self._complain("a system is there twice")
        self._systems = {name: name if label is None else str(label) for name, label in labels.items()}

    def plan(self) -> Plan:
        content = self._content
        for facts in content.columns.values():
            self._check_known(facts)
        given = {name: getattr(content, name) for name in ("baselines", *SETTINGS)}
        settings = {name: value for name, value in given.items() if value is not None}
        for name in settings.keys() & {"metrics", "baselines"}:
            settings[name] = tuple(map(str, _listed(settings[name])))
        return Plan(
            systems=self._systems,
            test_sets=tuple(self._test_set(name, one) for name, one in content.test_sets.items()),
            columns=content.columns,
            notes=tuple(map(str, _listed(content.notes))),
            pictures={title: self._picture(name) for title, name in content.pictures.items()},
            **{"baselines": default_baselines(self._systems), **settings},
        )

    def _test_set(self, name: str, content: _TestSet) -> TestSet:
        outputs = content.outputs
        if isinstance(outputs, dict):
            self._check_known(outputs)
        return TestSet(
            name=name,
            languages=language_pair(content.languages),
            source=None if content.source is None else self._file(content.source),
            references=self._files(content.reference),
            sacrebleu_name=str(content.test_set),
            outputs=self._matching(outputs)
            if isinstance(outputs, str)
            else {system: self._files(paths) for system, paths in outputs.items()},
        )

    def _matching(self, pattern: str) -> dict[str, tuple[Path, ...]]:
        """Return the files that match a pattern with the name of each system; * and ? match several runs."""
        outputs: dict[str, tuple[Path, ...]] = {}
        owners: dict[str, str] = {}
        for system in self._systems:
            found = sorted(glob.glob(pattern.replace("{system}", glob.escape(system)), root_dir=self._path.parent))
            for path in found:
                if owners.setdefault(path, system) != system:
                    self._complain(
                        f"the pattern {pattern!r} takes {path} for a run of {owners[path]} and of {system}. Make it "
                        "narrower, as with s[0-9]* for seeds"
                    )
            outputs[system] = self._files(found or [pattern.replace("{system}", system)])
        return outputs

    def _picture(self, name: str) -> str:
        """Return a picture as a data URI, so that a page with it needs no other file."""
        path = self._file(name)
        if path.suffix not in _PICTURES:
            self._complain(f"pictures: {name} is neither a .png nor an .svg")
        return f"data:image/{_PICTURES[path.suffix]};base64,{base64.b64encode(read_small(path)).decode('ascii')}"

    def _files(self, paths: FilePaths) -> tuple[Path, ...]:
        return tuple(map(self._file, _listed(paths)))

    def _file(self, path: str) -> Path:
        if not path or "\0" in path:
            self._complain(f"{path!r} is no path")
        return self._path.parent / path

    def _check_known(self, names: Iterable[str]) -> None:
        if unknown := [name for name in names if name not in self._systems]:
            self._complain(f"{', '.join(unknown)} not among the systems")

    def _complain(self, text: str) -> NoReturn:
        raise UsageError(f"{self._path}: {text}.")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
