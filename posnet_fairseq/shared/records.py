"""Records of work that is done once: JSON files that say what was made of what, by which attempts, with hashes."""

import contextlib
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from posnet_fairseq.shared import schema
from posnet_fairseq.shared.files import SMALL, read_small, reading, write_lines


class FileState(TypedDict):
    """Size in bytes, time of change in ns, and SHA-256 of a file."""

    bytes: int
    changed: int
    sha256: str


class _Content(TypedDict):
    settings: dict[str, Any]
    attempts: list[dict[str, Any]]
    finished: bool
    seconds: NotRequired[float]
    key: NotRequired[str]
    counts: NotRequired[dict[str, Any]]
    files: NotRequired[dict[str, FileState]]
    texts: NotRequired[list[FileState]]


class Record:
    """The record of a stage: what it depends on, every attempt at it, and, of a folder, what it holds.

    The JSON file at `path` need not be there. `content` has ``settings`` by name, ``attempts``, ``finished``; when an
    attempt has ended, ``seconds`` of all attempts; of a folder also ``key``, ``counts`` and ``files``; of a command
    ``files`` and ``texts``, which it reads.
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.content: dict[str, Any] = {"settings": {}, "attempts": [], "finished": False}
        if self.path.exists():
            what = "record of a stage"
            advice = "Move it away and run again: a training goes on from its checkpoints, another stage is done again."
            self.content = schema.read_json(path, _Content, what, advice)

    @property
    def finished(self) -> bool:
        """Whether the stage was done to its end."""
        return self.content["finished"]

    @property
    def seconds(self) -> float:
        """Seconds of all attempts together."""
        self._measure_killed()
        return sum(attempt.get("seconds", 0.0) for attempt in self.content["attempts"])

    def differences(self, settings: Mapping[str, Any]) -> list[str]:
        """Return a clause for each setting that differs from those of earlier attempts; none if there were none."""
        before = self.content["settings"] if self.content["attempts"] else settings
        return [_difference(name, before, settings) for name in changed(before, settings)]

    def is_exceeded(self, name: str, value: int) -> bool:
        """Return whether a setting, a number, was less in earlier attempts than a value is."""
        before = self.content["settings"].get(name)
        return isinstance(before, int) and before < value

    def begin(self, settings: Mapping[str, Any], **attempt: Any) -> None:
        """Note an attempt before it is made, so that one that is killed leaves its trace."""
        self._measure_killed()
        self.content |= {"settings": dict(settings), "finished": False}
        started = datetime.now().astimezone().isoformat(timespec="seconds")
        self.content["attempts"].append({"started": started, **attempt, "outcome": "interrupted"})
        self.write()

    def end(self, outcome: str, **measured: Any) -> None:
        """Note how the attempt ended: ``finished``, or how it failed."""
        self.content["attempts"][-1] |= {"outcome": outcome, **measured}
        self.content |= {"finished": outcome == "finished", "seconds": round(self.seconds, 1)}
        self.write()

    def write(self) -> None:
        """Write the file, whole or not at all."""
        write_lines(self.path, [json.dumps(self.content, indent=1)])

    def _measure_killed(self) -> None:
        """Note how long the last attempt took if it was killed, with nothing measured: until it wrote its last line."""
        log = self.path.with_suffix(".log")
        for attempt in self.content["attempts"][-1:]:
            if "seconds" not in attempt and "started" in attempt and log.exists():
                started = datetime.fromisoformat(attempt["started"]).timestamp()
                attempt["seconds"] = round(max(0.0, log.stat().st_mtime - started), 1)


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names whose values differ between two sets of settings, or that only one of them has."""
    return [name for name in {**before, **now} if not _is_same(before.get(name), now.get(name))]


def _is_same(before: Any, now: Any) -> bool:
    """Return whether two values are the same, or the same number: 2e-3 and 0.002."""
    with contextlib.suppress(TypeError, ValueError):
        return before == now or float(before) == float(now) < math.inf  # which some hashes would be read as
    return False


def _difference(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    values = [of[name] for of in (before, now) if name in of]
    if any(isinstance(value, list | dict) for value in values):  # files by their hashes and the like
        return f"{name} {'has changed' if len(values) == 2 else 'is new' if name in now else 'is no longer given'}"
    then, new = (("given" if of[name] == "" else str(of[name])) if name in of else "not given" for of in (before, now))
    return f"{name}: {then} then, {new} now" if len(then + new) < 200 else f"{name} has changed"


def installed_versions(*packages: str) -> dict[str, str]:
    """Return the versions of the packages that are installed, by name."""
    versions = {}
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def json_if_whole(path: Path, most: int = SMALL) -> object:
    """Return the content of a JSON file of at most `most` bytes, None if it is not there or damaged, in any way."""
    try:
        return schema.loads(read_small(path, most))
    except ValueError:
        return None


def sealed(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a JSON object with their hash as the entry ``sha256``, which tells if one was changed."""
    others = {name: entry for name, entry in entries.items() if name != "sha256"}
    return others | {"sha256": hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()}


def describe(paths: Iterable[Path]) -> dict[str, FileState]:
    """Return the state of files by their names, in order."""
    looks = {path: path.stat() for path in sorted(paths) if path.is_file()}
    return {
        path.name: {"bytes": look.st_size, "changed": look.st_mtime_ns, "sha256": digest(path)}
        for path, look in looks.items()
    }


def are_intact(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether files are as :func:`describe` saw them. Only those with another date are read."""
    for name, then in files.items():
        path = folder / name
        if path.parent != folder or not path.is_file() or path.stat().st_size != then.get("bytes"):
            return False
        if path.stat().st_mtime_ns != then.get("changed") and digest(path) != then.get("sha256"):
            return False
    return True


def digest(path: Path | str, algorithm: str = "sha256") -> str:
    """Return the hash of a file, in hexadecimal."""
    with reading(path), open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()
