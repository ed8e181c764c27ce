"""Work in stages, each done once: again only if its options, or what it is made of, have changed."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.progress import amount

RECORD = "stage.json"
PROGRESS = ".progress"  # ending of the notes that interrupted work is resumed from


@dataclass(frozen=True, eq=False)
class Stage:
    """One step, which fills a folder of its own.

    Args:
        name: of the folder.
        make: function from the folder and a :class:`posnet_fairseq.shared.progress.ProgressReporter` to counts for the
            record, a dict. The folder may hold what an interrupted run of the same stage left there.
        options: plain values that its outcome depends on.
        after: the stages whose folders it reads.
        size: about how many bytes it writes.
        temporary: the folder is needed by the stages directly after it only, and goes when they are done.
        packages: whose versions are recorded.
    """

    name: str
    make: Callable
    options: dict
    after: tuple["Stage", ...] = ()
    size: int = 0
    temporary: bool = False
    packages: tuple[str, ...] = ()

    @cached_property
    def key(self):
        """A hash of all that its outcome depends on."""
        return hashlib.sha256(json.dumps([self.name, self.options, [s.key for s in self.after]]).encode()).hexdigest()


@dataclass
class Workshop:
    """The folder of the stages of one dataset.

    Args:
        folder: which is made.
        report: shows progress.
    """

    folder: Path
    report: object

    def of(self, stage):
        """The folder of a stage."""
        return self.folder / stage.name

    def record(self, stage):
        """What the record of a stage's folder says, or None if there is no folder that was finished."""
        record = read_record(self.of(stage) / RECORD)
        whole = record and {"options", "counts", "versions", "seconds"} <= record.keys()
        return record if whole and isinstance(record["options"], dict) else None

    def is_done(self, stage):
        """Whether the folder holds what this stage would make."""
        record = self.record(stage)
        return record is not None and record["key"] == stage.key and are_intact(self.of(stage), record["files"])

    def pending(self, goal):
        """The stages that must be done to reach a goal, in order."""
        if self.is_done(goal):
            return []
        stages = [stage for earlier in goal.after for stage in self.pending(earlier)]
        return list({stage.name: stage for stage in [*stages, goal]}.values())

    def needed(self, goal):
        """About how many bytes the pending stages take at most, temporary ones only as long as they are needed."""
        most = now = 0
        for stage in self.pending(goal):
            now += max(0, stage.size - self._begun(stage))
            most = max(most, now)
            now -= sum(earlier.size for earlier in stage.after if earlier.temporary)
        return most

    def _begun(self, stage):
        """Bytes that an interrupted run has written."""
        return sum(path.stat().st_size for path in self._partial(stage).glob("*"))

    def _partial(self, stage):
        return self.folder / f"{stage.name}.partial"

    def run(self, goal):
        """Do what must be done for a goal."""
        for stage in self.pending(goal):
            reason = self._reason(stage)
            if reason:
                self.report.say(f"{stage.name} is made anew: {reason}")
            self._make(stage)
            self._clear(stage.after)
        self._clear(goal.after)
        for left in self.folder.glob("*.partial"):  # of other datasets that were begun here
            remove(left)

    def _clear(self, stages):
        """Remove temporary stages that are not needed any more, those before them too."""
        for stage in stages:
            if stage.temporary:
                shutil.rmtree(self.of(stage), ignore_errors=True)
            if self.is_done(stage):
                self._clear(stage.after)

    def _make(self, stage):
        partial = self._partial(stage)
        note = partial / "key"
        if not (note.is_file() and note.read_bytes() == f"{stage.key}\n".encode()):
            remove(partial)
            partial.mkdir(parents=True)
            write_lines(note, [stage.key])
        start = time.perf_counter()
        counts = stage.make(partial, self.report)
        seconds = round(time.perf_counter() - start, 1)
        # Notes, and files that an interrupted run was just writing under a hidden name.
        for left in [note, *partial.glob(f"*{PROGRESS}"), *partial.glob(".*")]:
            left.unlink()
        record = {"key": stage.key, "stage": stage.name, "options": stage.options, "counts": counts}
        record |= {"seconds": seconds, "versions": _versions(stage.packages), "files": describe(partial)}
        write_lines(partial / RECORD, [json.dumps(record, indent=2, ensure_ascii=False)])
        remove(self.of(stage))
        partial.rename(self.of(stage))

    def _reason(self, stage):
        """Why an earlier outcome is not good enough; nothing if there is none."""
        record = self.record(stage)
        if record is None:
            return ""
        if record["key"] == stage.key:
            return "its files were changed after they had been made"
        before, now = record["options"], json.loads(json.dumps(stage.options))
        changed = [name for name in before | now if before.get(name) != now.get(name)]
        return "; ".join(_change(name, before.get(name), now.get(name)) for name in changed)


def remove(path: Path) -> None:
    """Remove a folder with all in it, or whatever else stands in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _versions(packages):
    versions = {}
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _change(name, before, now):
    short = max(len(str(before)), len(str(now))) < 40
    return f"{name}: {before} → {now}" if short else f"{name} has changed"


def read_record(path):
    """What a record or card of ours says, or None if there is none, or none of ours."""
    record = read_json(path)
    if not isinstance(record, dict) or not {"key", "files"} <= record.keys() or not isinstance(record["files"], dict):
        return None
    # A name with a folder in it would be one of another place's files.
    described = all(
        Path(name).name == name and isinstance(about, dict) and {"bytes", "changed", "sha256"} <= about.keys()
        for name, about in record["files"].items()
    )
    return record if described else None


def read_json(path: Path) -> object:
    """What a JSON file holds; None if it is not there or damaged, whatever the damage."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError):
        return None


def describe(folder):
    """Size, time of change and SHA-256 of every file of a folder, a dict by name."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return {path.name: {**_look(path), "sha256": digest(path, "sha256")} for path in files}


def are_intact(folder, files):
    """Whether all files of :func:`describe` are there as they were. Only those with another date are read."""
    for name, about in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != about["bytes"]:
            return False
        if _look(path)["changed"] != about["changed"] and digest(path, "sha256") != about["sha256"]:
            return False
    return True


def _look(path):
    status = path.stat()
    return {"bytes": status.st_size, "changed": status.st_mtime_ns}


def digest(path, algorithm):
    """The hash of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


LOCK = ".lock"


def is_ours(folder):
    """Whether a folder is one of stages."""
    return (folder / LOCK).exists()


@contextlib.contextmanager
def alone(folder):
    """Keep others from working in a folder at the same time.

    Raises:
        UsageError: someone is at work there.
    """
    lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        for attempt in range(10):  # processes of a run that was killed hold it a moment longer
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if attempt == 9:
                    raise UsageError(
                        f"another posnet-prepare is at work in {folder}. Wait for it, or stop it."
                    ) from error
                time.sleep(0.1)
        yield
    finally:
        os.close(lock)


def refuse_too_little_disk(folder, needed):
    """Refuse work that would fill the disk.

    Args:
        folder: where it writes; it may not be there yet.
        needed: bytes, about.

    Raises:
        UsageError: there are not as many.
    """
    free = free_bytes(folder)
    if needed > free:
        raise UsageError(
            f"{folder}: about {amount(needed, 'bytes')} are needed there, {amount(free, 'bytes')} are free. Make room, "
            "or choose a place on another disk."
        )


def free_bytes(folder):
    """Free bytes of the disk of a folder that may not be there yet."""
    return shutil.disk_usage(_existing(folder)).free


def are_on_one_disk(*folders):
    """Whether folders, which may not be there yet, share their free bytes."""
    return len({_existing(folder).stat().st_dev for folder in folders}) == 1


def _existing(folder):
    """The folder, or the nearest above it that is there."""
    folder = Path(folder).absolute()
    while not folder.exists():
        folder = folder.parent
    return folder
