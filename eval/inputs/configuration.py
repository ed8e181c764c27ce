"""Reading of a comparison of several test sets, systems and seeds from a YAML file."""

import base64
import glob
from collections.abc import Mapping, Sequence
from pathlib import Path
from sys import float_info
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec

from posnet_eval.inputs.plan import SETTINGS, Plan, TestSet, default_baselines, language_pair
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import read_small
from posnet_fairseq.shared.schema import PlainLoader, read_yaml

Value = TypeVar("Value")
Name = str | int | float  # YAML reads 2014 as a number
Names = Name | list[Name]
FilePaths = str | list[str]
Finite = Annotated[float, msgspec.Meta(ge=-float_info.max, le=float_info.max)]


class _TestSet(msgspec.Struct, forbid_unknown_fields=True):
    outputs: str | dict[Name, FilePaths]
    languages: str | None = None
    source: str | None = None
    reference: FilePaths = []
    test_set: Name = ""


class _Comparison(msgspec.Struct, forbid_unknown_fields=True):
    systems: list[Name] | dict[Name, Name | None]
    test_sets: Annotated[dict[Name, _TestSet], msgspec.Meta(min_length=1)]
    metrics: Names | None = None
    baselines: Names | None = None
    columns: dict[Name, dict[Name, str | int | Finite]] = {}
    notes: Names = []
    pictures: dict[Name, str] = {}
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
    return _Reader(path).plan(read_yaml(path, _Comparison, PlainLoader))


class _Reader:
    """Turns the content of a file into a plan; every error names the file."""

    def __init__(self, path: Path) -> None:
        self._path, self._folder = path, Path(path).parent
        self._systems: dict[str, str] = {}

    def plan(self, content: _Comparison) -> Plan:
        systems = content.systems
        labels = self._named(systems if isinstance(systems, dict) else [(name, None) for name in systems])
        self._systems = {name: name if label is None else str(label) for name, label in labels.items()}
        given = {name: getattr(content, name) for name in ("baselines", *SETTINGS)}
        settings = {name: value for name, value in given.items() if value is not None}
        for name in settings.keys() & {"metrics", "baselines"}:
            settings[name] = tuple(map(str, _listed(settings[name])))
        return Plan(
            systems=self._systems,
            test_sets=tuple(self._test_set(name, one) for name, one in self._named(content.test_sets).items()),
            columns={title: self._of_systems(facts) for title, facts in self._named(content.columns).items()},
            notes=tuple(map(str, _listed(content.notes))),
            pictures={title: self._picture(path) for title, path in self._named(content.pictures).items()},
            **{"baselines": default_baselines(self._systems), **settings},
        )

    def _test_set(self, name: str, content: _TestSet) -> TestSet:
        outputs = content.outputs
        return TestSet(
            name=name,
            languages=language_pair(content.languages),
            source=None if content.source is None else self._file(content.source),
            references=self._files(content.reference),
            sacrebleu_name=str(content.test_set),
            outputs=self._matching(outputs)
            if isinstance(outputs, str)
            else {system: self._files(paths) for system, paths in self._of_systems(outputs).items()},
        )

    def _matching(self, pattern: str) -> dict[str, tuple[Path, ...]]:
        """Return the files that match a pattern with the name of each system; * and ? match several runs."""
        outputs: dict[str, tuple[Path, ...]] = {}
        owners: dict[str, str] = {}
        for system in self._systems:
            found = sorted(glob.glob(pattern.replace("{system}", glob.escape(system)), root_dir=self._folder))
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
        if path.suffix not in (".png", ".svg"):
            self._complain(f"pictures: {name} is neither a .png nor an .svg")
        content = base64.b64encode(read_small(path)).decode("ascii")
        return f"data:image/{'png' if path.suffix == '.png' else 'svg+xml'};base64,{content}"

    def _files(self, paths: FilePaths) -> tuple[Path, ...]:
        return tuple(map(self._file, _listed(paths)))

    def _file(self, path: str) -> Path:
        if not path or "\0" in path:
            self._complain(f"{path!r} is no path")
        return self._folder / path

    def _of_systems(self, content: Mapping[Name, Value]) -> dict[str, Value]:
        """Return a mapping whose keys are names of systems."""
        found = self._named(content)
        if unknown := [name for name in found if name not in self._systems]:
            self._complain(f"{', '.join(unknown)} not among the systems")
        return found

    def _named(self, items: Mapping[Name, Value] | Sequence[tuple[Name, Value]]) -> dict[str, Value]:
        """Return a mapping whose keys are text."""
        found: dict[str, Value] = {}
        for key, value in items.items() if isinstance(items, Mapping) else items:
            if str(key) in found:
                self._complain(f"{key} is there twice")
            found[str(key)] = value
        return found

    def _complain(self, text: str) -> NoReturn:
        raise UsageError(f"{self._path}: {text}.")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
