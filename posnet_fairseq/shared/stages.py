"""Work in stages, each done once: again only if its options, or what it is made of, have changed.

Two kinds of steps share the engine: :class:`Stage` fills a folder of its own (posnet-prepare), and
:class:`posnet_fairseq.runs.command_stage.CommandStage` runs a command whose outputs lie in the folder of a run.
"""

import abc
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.progress import ProgressReporter, shown
from posnet_fairseq.shared.records import are_intact, describe, installed_versions, read_record

RECORD = "stage.json"
PROGRESS = ".progress"  # ending of the notes that interrupted work is resumed from
LOCK = ".lock"
STEP = 0.1  # seconds between two attempts to take a lock


class Step(abc.ABC):
    """What a :class:`StageRunner` does once.

    Attributes:
        name: of its outputs.
        after: the steps whose outputs it reads.
        size: bytes that it writes, about.
        temporary: whether its outputs are removed when the steps directly after it are done.
    """

    name: str
    after: "tuple[Step, ...]" = ()
    size: int = 0
    temporary: bool = False

    @abc.abstractmethod
    def is_done(self, folder: Path) -> bool:
        """Whether the folder holds what this step would make."""

    @abc.abstractmethod
    def perform(self, runner: "StageRunner") -> None:
        """Make it in the runner's folder, and a record of it."""

    def begun(self, folder: Path) -> int:
        """Bytes that an interrupted attempt has written."""
        return 0

    def remove(self, folder: Path) -> None:  # noqa: B027 (of a step that is never temporary)
        """Remove the outputs of a temporary step."""


@dataclass
class StageRunner:
    """Does steps in a folder, in order, each once.

    Args:
        folder: of their outputs.
        report: shows progress.

    Attributes:
        lock: file descriptor of the folder's lock while :meth:`do` holds it. A command that inherits it keeps others
            out of the folder, even if the process that started it is killed.
    """

    folder: Path
    report: ProgressReporter
    lock: int | None = field(default=None, init=False)

    def of(self, stage: "Stage") -> Path:
        """The folder of a stage."""
        return stage.place(self.folder)

    def record(self, stage: "Stage") -> dict[str, Any] | None:
        """The record of a stage that was finished, else None."""
        return stage.record(self.folder)

    def is_done(self, step: Step) -> bool:
        """Whether the folder holds what this step would make."""
        return step.is_done(self.folder)

    def pending(self, goal: Step) -> list[Step]:
        """The steps that must be done to reach a goal, in order."""
        if self.is_done(goal):
            return []
        steps = [step for earlier in goal.after for step in self.pending(earlier)]
        return list({step.name: step for step in [*steps, goal]}.values())

    def needed(self, goal: Step) -> int:
        """Bytes that the pending steps take at most, about; temporary ones only as long as they are needed."""
        most = now = 0
        for step in self.pending(goal):
            now += max(0, step.size - step.begun(self.folder))
            most = max(most, now)
            now -= sum(earlier.size for earlier in step.after if earlier.temporary)
        return most

    def run(self, goal: Step) -> None:
        """Do all that must be done for a goal. The caller holds :func:`exclusive_lock`."""
        for step in self.pending(goal):
            step.perform(self)
            self._clear(step.after)
        self._clear(goal.after)
        for left in self.folder.glob("*.partial"):  # of other datasets that were begun here
            remove(left)

    def do(self, step: Step, patience: float = 1.0) -> None:
        """Do one step, with nobody else at work in the folder, unless it is done.

        Args:
            step: what to do.
            patience: seconds to wait for the folder.

        Raises:
            UsageError: the step failed, or another process works in the folder.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(self.folder, patience) as self.lock:
            if not self.is_done(step):  # else another process did it, meanwhile
                step.perform(self)
        self.lock = None

    def _clear(self, steps: tuple[Step, ...]) -> None:
        """Remove temporary steps that are not needed any more, and the temporary steps before them."""
        for step in steps:
            if step.temporary:
                step.remove(self.folder)
            if self.is_done(step):
                self._clear(step.after)


@dataclass(frozen=True, eq=False)
class Stage(Step):
    """A step that fills a folder of its own, which appears when it is whole.

    Args:
        name: of the folder.
        make: function from the folder and a :class:`posnet_fairseq.shared.progress.ProgressReporter` to counts for the
            record, a dict. The folder may hold what an interrupted attempt at this stage left there.
        options: plain values that its outcome depends on.
        after: the stages whose folders it reads.
        size: bytes that it writes, about.
        temporary: whether the folder is removed when the stages directly after it are done.
        packages: whose versions are recorded.
    """

    name: str
    make: Callable[[Path, ProgressReporter], dict[str, Any]]
    options: dict[str, Any]
    after: tuple["Stage", ...] = ()
    size: int = 0
    temporary: bool = False
    packages: tuple[str, ...] = ()

    @cached_property
    def key(self) -> str:
        """A hash of all that its outcome depends on."""
        return hashlib.sha256(json.dumps([self.name, self.options, [s.key for s in self.after]]).encode()).hexdigest()

    def place(self, folder: Path) -> Path:
        """The stage's own folder."""
        return folder / self.name

    def record(self, folder: Path) -> dict[str, Any] | None:
        """The content of its record, or None if there is no folder that was finished."""
        record = read_record(self.place(folder) / RECORD)
        if record is None or not {"options", "counts", "versions", "seconds"} <= record.keys():
            return None
        return record if isinstance(record["options"], dict) else None

    def is_done(self, folder: Path) -> bool:
        """Whether the folder holds what this stage would make, unchanged."""
        record = self.record(folder)
        return record is not None and record["key"] == self.key and are_intact(self.place(folder), record["files"])

    def begun(self, folder: Path) -> int:
        """Bytes that an interrupted attempt has written."""
        return sum(path.stat().st_size for path in self._partial(folder).glob("*"))

    def remove(self, folder: Path) -> None:
        """Remove the stage's own folder."""
        shutil.rmtree(self.place(folder), ignore_errors=True)

    def perform(self, runner: StageRunner) -> None:
        """Fill the folder under another name, which it loses when it is whole."""
        reason = self._reason(runner.folder)
        if reason:
            runner.report.say(f"{self.name} is made anew: {reason}")
        partial = self._partial(runner.folder)
        note = partial / "key"
        if not (note.is_file() and note.read_bytes() == f"{self.key}\n".encode()):
            remove(partial)
            partial.mkdir(parents=True)
            write_lines(note, [self.key])
        start = time.perf_counter()
        counts = self.make(partial, runner.report)
        seconds = round(time.perf_counter() - start, 1)
        # Notes, and files that an interrupted attempt was just writing under a hidden name.
        for left in [note, *partial.glob(f"*{PROGRESS}"), *partial.glob(".*")]:
            left.unlink()
        record: dict[str, Any] = {"key": self.key, "stage": self.name, "options": self.options, "counts": counts}
        record |= {"seconds": seconds, "versions": installed_versions(*self.packages), "files": describe(partial)}
        write_lines(partial / RECORD, [json.dumps(record, indent=2, ensure_ascii=False)])
        remove(self.place(runner.folder))
        partial.rename(self.place(runner.folder))

    def _partial(self, folder: Path) -> Path:
        return folder / f"{self.name}.partial"

    def _reason(self, folder: Path) -> str:
        """Why an earlier outcome is not good enough, "" if there is none."""
        record = self.record(folder)
        if record is None:
            return ""
        if record["key"] == self.key:
            return "its files were changed after they had been made"
        before, now = record["options"], json.loads(json.dumps(self.options))
        return "; ".join(_change(name, before.get(name), now.get(name)) for name in changed(before, now))


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names whose values differ between two sets of options, or that only one of them has."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def _change(name: str, before: object, now: object) -> str:
    short = max(len(str(before)), len(str(now))) < 40
    return f"{name}: {before} → {now}" if short else f"{name} has changed"


def remove(path: Path) -> None:
    """Remove a folder with all in it, or whatever else stands in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def is_ours(folder: Path) -> bool:
    """Whether steps were done in a folder."""
    return (folder / LOCK).exists()


@contextlib.contextmanager
def exclusive_lock(folder: Path, patience: float = 1.0) -> Iterator[int]:
    """Keep other processes from working in a folder.

    Args:
        folder: which is there.
        patience: seconds to wait for it: processes of an attempt that was killed hold it a moment longer.

    Yields:
        the file descriptor of the lock.

    Raises:
        UsageError: another process works there.
    """
    lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o666)
    deadline = time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise UsageError(
                        f"{shown(folder)}: another process works in this folder. Wait for it, or stop it."
                    ) from error
            time.sleep(STEP)
        yield lock
    finally:
        os.close(lock)
