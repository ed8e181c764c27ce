"""Reading of a comparison of several test sets, systems and seeds from a YAML file."""

import base64
import errno
import glob
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from reprlib import repr  # short, where anchors in a small file stand for thousands of values
from typing import Any, NoReturn

from posnet_eval.inputs.plan import Fact, Plan, TestSet, default_baselines, language_pair
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.schema import PlainLoader, read_yaml

# Keys of the file that are fields of a Plan, with their types.
_SIMPLE: dict[str, type] = {
    "test": str, "resamples": int, "trials": int, "seed": int, "lowercase": bool, "tokenize": str,
    "bleurt_model": str, "comet_model": str, "comet_encoder": str,
}  # fmt: skip
_KEYS = ("systems", "test_sets", "metrics", "baselines", "columns", "notes", "pictures", *_SIMPLE)
_PICTURES = {".png": "image/png", ".svg": "image/svg+xml"}
_TEST_SET_KEYS = ("languages", "source", "reference", "test_set", "outputs")


def read_plan(path: Path) -> Plan:
    """Return the comparison that a file describes; paths in it are relative to its folder.

    Raises:
        UsageError: the file is missing or not YAML, or has unknown keys or values that are not allowed.
    """
    return _Reader(path).plan(read_yaml(path, loader=PlainLoader))


class _Reader:
    """Turns the content of a file into a plan; every error names the file and the key."""

    def __init__(self, path: Path) -> None:
        self._path, self._folder = path, Path(path).parent

    def plan(self, content: Any) -> Plan:
        self._check_keys(content, _KEYS, "the file", required=("systems", "test_sets"))
        systems = self._systems(content["systems"])
        options: dict[str, Any] = {
            key: self._of_kind(content[key], kind, key) for key, kind in _SIMPLE.items() if key in content
        }
        for key in ("metrics", "baselines", "notes"):
            if key in content:
                options[key] = tuple(self._name(name, key) for name in self._list(content[key]))
        if "columns" in content:
            options["columns"] = self._columns(content["columns"], systems)
        if "pictures" in content:
            pictures = self._of_kind(content["pictures"], dict, "pictures")
            options["pictures"] = {
                self._name(title, "pictures"): self._picture(path) for title, path in pictures.items()
            }
        options.setdefault("baselines", default_baselines(systems))
        sets = self._of_kind(content["test_sets"], dict, "test_sets")
        test_sets = tuple(self._test_set(str(name), one, systems) for name, one in sets.items())
        if not test_sets:
            self._complain("test_sets is empty. Name at least one")
        return Plan(systems=systems, test_sets=test_sets, **options)

    def _systems(self, content: Any) -> dict[str, str]:
        if isinstance(content, list):
            names = [self._name(name, "systems") for name in content]
            content = dict.fromkeys(names)
            if len(content) < len(names):
                self._complain(f"systems are {', '.join(names)}; name each one once")
        if not isinstance(content, dict) or not content:
            self._complain("systems is neither a list of names nor a mapping from names to labels")
        systems = {}
        for name, label in content.items():
            name = self._name(name, "systems")
            systems[name] = name if label is None else self._name(label, f"the label of {name}")
        return systems

    def _columns(self, content: Any, systems: Mapping[str, str]) -> dict[str, dict[str, Fact]]:
        columns: dict[str, dict[str, Fact]] = {}
        for title, facts in self._of_kind(content, dict, "columns").items():
            title = self._name(title, "columns")
            where = f"column {title!r}"
            if title in columns:
                self._complain(f"{where} is there twice")
            found = self._by_system(facts, systems, where)
            columns[title] = {system: self._fact(value, f"{where}: {system}") for system, value in found.items()}
        return columns

    def _fact(self, value: Any, where: str) -> Fact:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self._complain(f"{where} is {repr(value)}, it should be text (in quotes) or a number")
        if isinstance(value, float) and not math.isfinite(value):
            self._complain(f"{where} is {value}, which is no number. Leave it out, or put it in quotes")
        return value

    def _test_set(self, name: str, content: Any, systems: Mapping[str, str]) -> TestSet:
        where = f"test set {name}"
        self._check_keys(content, _TEST_SET_KEYS, where, required=("outputs",))
        if ("reference" in content) == ("test_set" in content):
            self._complain(f"{where}: give either reference or test_set")
        paths = self._list(content.get("reference", []))
        references = tuple(self._file(path, f"reference of {where}") for path in paths)
        if "reference" in content and not references:
            self._complain(f"reference of {where} is empty. Name a file")
        languages = ("", "")
        if "languages" in content:
            languages = language_pair(self._of_kind(content["languages"], str, f"languages of {where}"))
        return TestSet(
            name=name,
            languages=languages,
            source=self._file(content["source"], f"source of {where}") if "source" in content else None,
            references=references,
            sacrebleu_name=str(content.get("test_set", "")),
            outputs=self._outputs(content["outputs"], systems, where),
        )

    def _outputs(self, content: Any, systems: Mapping[str, str], where: str) -> dict[str, tuple[Path, ...]]:
        if isinstance(content, str):
            return self._pattern(content, systems, where)
        where = f"outputs of {where}"
        return {
            system: tuple(self._file(path, where) for path in self._list(paths))
            for system, paths in self._by_system(content, systems, where).items()
        }

    def _by_system(self, content: Any, systems: Mapping[str, str], where: str) -> dict[str, Any]:
        """Return a mapping whose keys are names of systems."""
        unknown = [str(name) for name in self._of_kind(content, dict, where) if str(name) not in systems]
        if unknown:
            self._complain(f"{where}: {', '.join(unknown)} not among the systems")
        return {str(name): value for name, value in content.items()}

    def _pattern(self, pattern: str, systems: Mapping[str, str], where: str) -> dict[str, tuple[Path, ...]]:
        """Return the files that match a pattern with the name of each system; * and ? match several runs."""
        if "{system}" not in pattern:
            self._complain(f"outputs of {where}: the pattern {pattern!r} lacks {{system}}")
        outputs: dict[str, tuple[Path, ...]] = {}
        owners: dict[str, str] = {}
        for system in systems:
            found = sorted(glob.glob(pattern.replace("{system}", glob.escape(system)), root_dir=self._folder))
            for path in found:
                if path in owners:
                    self._complain(
                        f"outputs of {where}: the pattern {pattern!r} takes {path} for a run of {owners[path]} and of "
                        f"{system}. Make it narrower, as with s[0-9]* for seeds"
                    )
                owners[path] = system
            outputs[system] = tuple(self._folder / path for path in found or [pattern.replace("{system}", system)])
        return outputs

    def _picture(self, value: Any) -> str:
        """Return a picture as a data URI, so that a page with it needs no other file."""
        path = self._file(value, "a path of pictures")
        kind = _PICTURES.get(path.suffix)
        if kind is None:
            self._complain(f"pictures: {value} is neither a .png nor an .svg")
        try:
            if not path.is_file():  # a device has no end
                raise FileNotFoundError(errno.ENOENT, "there is no such file")
            content = path.read_bytes()
        except OSError as error:
            self._complain(f"pictures: {value}: {error.strerror}")
        return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"

    def _file(self, value: Any, where: str) -> Path:
        if "\0" in self._of_kind(value, str, where):
            self._complain(f"{where} is {repr(value)}, which is no path")
        return self._folder / value

    def _name(self, value: Any, where: str) -> str:
        """Return a name, which may be a number in the file."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self._complain(f"{where}: {repr(value)} is no name. Give text")
        return str(value)

    def _list(self, value: Any) -> list[Any]:
        return value if isinstance(value, list) else [value]

    def _of_kind(self, value: Any, kind: type, where: str) -> Any:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            names = {str: "text", int: "a whole number", bool: "true or false", dict: "a mapping"}
            self._complain(f"{where} is {repr(value)}, it should be {names[kind]}")
        return value

    def _check_keys(self, content: Any, allowed: Sequence[str], where: str, required: Sequence[str]) -> None:
        if not isinstance(content, dict):
            self._complain(f"{where} is not a mapping with the keys {', '.join(required)}")
        unknown = [str(key) for key in content if key not in allowed]
        if unknown:
            self._complain(f"{where} has unknown keys: {', '.join(unknown)}. There are {', '.join(allowed)}")
        missing = [key for key in required if key not in content]
        if missing:
            self._complain(f"{where} lacks {', '.join(missing)}")

    def _complain(self, text: str) -> NoReturn:
        raise UsageError(f"{self._path}: {text}.")
