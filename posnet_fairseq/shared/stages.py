"""Stages that fill folders, each done once: again only if its settings, or what it is made of, have changed."""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.processes import try_lock
from posnet_fairseq.shared.progress import ProgressReporter, shown
from posnet_fairseq.shared.records import Record, are_intact, describe, installed_versions

RECORD = "stage.json"
PARTIAL = ".partial"  # ending of a folder that is being filled
PROGRESS = ".progress"  # ending of the notes that interrupted work is resumed from
LOCK = ".lock"
STEP = 0.1  # seconds between two attempts to take a lock


def pending(goal: "FolderStage") -> list["FolderStage"]:
    """Return the stages that must be done to reach a goal, in order."""
    if goal.is_done():
        return []
    return list(dict.fromkeys([*(stage for earlier in goal.after for stage in pending(earlier)), goal]))


def perform_pending(goal: "FolderStage", report: ProgressReporter) -> None:
    """Do the pending stages of a goal. The caller holds the :func:`exclusive_lock` of their folder."""
    for stage in pending(goal):
        stage.perform(report)


@dataclass(frozen=True, eq=False)
class FolderStage:
    """A stage that fills a folder of its own, which appears when it is whole.

    Args:
        folder: its own; the name is that of the stage.
        make: function from the folder and a reporter of progress to counts for the record. The folder may hold what an
            interrupted attempt at this stage left there.
        settings: plain values that its outcome depends on.
        after: the stages whose folders it reads.
        size: bytes that it writes, about.
        temporary: whether the folder is removed when a stage directly after it is done.
        packages: whose versions are recorded.
    """

    folder: Path
    make: Callable[[Path, ProgressReporter], dict[str, Any]]
    settings: dict[str, Any]
    after: "tuple[FolderStage, ...]" = ()
    size: int = 0
    temporary: bool = False
    packages: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name

    @cached_property
    def key(self) -> str:
        """A hash of all that its outcome depends on."""
        return hashlib.sha256(json.dumps([self.name, self.settings, [s.key for s in self.after]]).encode()).hexdigest()

    @property
    def record(self) -> dict[str, Any] | None:
        """The content of its :class:`Record` if it was finished, with any settings, else None."""
        record = _read(self.folder)
        return record.content if record and record.finished else None

    @property
    def counts(self) -> dict[str, Any]:
        """The counts of its record; none if it was not finished."""
        return self.record["counts"] if self.record else {}

    def is_done(self) -> bool:
        """Return whether the folder holds what this stage would make, unchanged."""
        record = self.record
        return record is not None and record["key"] == self.key and are_intact(self.folder, record["files"])

    def needed(self) -> int:
        """Return the bytes that pending stages take at most, about; temporary ones only while they are needed."""
        most = now = 0
        for stage in pending(self):
            begun = sum(path.stat().st_size for path in stage._partial.glob("*"))
            now += max(0, stage.size - begun)
            most = max(most, now)
            now -= sum(earlier.size for earlier in stage.after if earlier.temporary)
        return most

    def clear(self) -> None:
        """Remove temporary stages before this one, which is done."""
        for stage in self.after:
            if stage.temporary:
                remove(stage.folder)
            if stage.is_done():
                stage.clear()

    def perform(self, report: ProgressReporter) -> None:
        """Fill the folder under another name, which it loses when it is whole."""
        earlier = _read(self.folder)
        if earlier and earlier.finished:
            same = earlier.content["key"] == self.key
            now = json.loads(json.dumps(self.settings))
            why = ["its files were changed after they had been made"] if same else earlier.differences(now)
            if why:
                report.say(f"{self.name} is repeated: {'; '.join(why)}")
        partial = self._partial
        record = _read(partial)
        if record is None or record.content["key"] != self.key:
            remove(partial)
            partial.mkdir(parents=True)
            record = Record(partial / RECORD)
        record.content |= {"key": self.key, "counts": {}, "files": {}}
        record.begin(self.settings, versions=installed_versions(*self.packages))
        start = time.perf_counter()
        record.content["counts"] = self.make(partial, report)
        seconds = round(time.perf_counter() - start, 1)
        # Notes, and files that an interrupted attempt was just writing under a hidden name.
        for left in [*partial.glob(f"*{PROGRESS}"), *partial.glob(".*")]:
            left.unlink()
        record.content["files"] = describe(path for path in partial.iterdir() if path.name != RECORD)
        record.end("finished", seconds=seconds)
        remove(self.folder)
        partial.rename(self.folder)
        self.clear()

    @property
    def _partial(self) -> Path:
        return self.folder.with_name(f"{self.name}{PARTIAL}")


def _read(folder: Path) -> Record | None:
    """Return the record of a stage's folder; None if there is none, or it is damaged."""
    with contextlib.suppress(UsageError):
        record = Record(folder / RECORD)
        if {"key", "counts", "files"} <= record.content.keys():
            return record
    return None


def remove(path: Path) -> None:
    """Remove a folder with all in it, or whatever else stands in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def exclusive_lock(folder: Path, patience: float = 1.0) -> Iterator[int]:
    """Keep other processes from working in a folder, which is made if it is not there.

    Waits some seconds for it: processes of an attempt that was killed hold it a moment longer. Yields the file
    descriptor of the lock. A command that inherits it keeps others out, even if this process is killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o666)
    deadline = time.monotonic() + patience
    try:
        while not try_lock(lock):
            if time.monotonic() > deadline:
                raise UsageError(f"{shown(folder)}: another process works in this folder. Wait for it, or stop it.")
            time.sleep(STEP)
        yield lock
    finally:
        os.close(lock)
