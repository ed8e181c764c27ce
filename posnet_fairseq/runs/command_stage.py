"""Stages of a run: commands whose outputs lie side by side in its folder, each with RUN/NAME.log and RUN/NAME.json.

A stage that is finished is left alone, unless its file is gone or the file that it is made of has changed since; one
that was cut short is done again; other settings than before are refused.
"""

import contextlib
import os
import platform
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from posnet_fairseq.runs import earlier_records
from posnet_fairseq.shared.common_options import FAIRSEQS
from posnet_fairseq.shared.errors import UsageError, last_error
from posnet_fairseq.shared.failures import explain
from posnet_fairseq.shared.processes import repaired, start
from posnet_fairseq.shared.progress import Bar, ProgressReporter, shown
from posnet_fairseq.shared.records import Record, are_intact, describe, installed_versions, json_if_whole
from posnet_fairseq.shared.results import PLACE
from posnet_fairseq.shared.stages import exclusive_lock

PATIENCE = 10.0  # seconds to wait for a run's folder: processes that load data outlive a killed training by some
STEP = 0.5  # seconds between two looks at a command that runs
PACKAGES = ("posnet", *FAIRSEQS, "torch", "numpy", "sentencepiece", "subword-nmt", "sacrebleu")
# Variables of commands, unless they are set: memory in large pages where Linux gives them to programs that ask; logs in
# UTF-8 in any locale.
VARIABLES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PYTHONIOENCODING": "utf-8:backslashreplace"}


class Diverged(UsageError):
    """The failure of a training whose gradients became infinite or NaN."""


def last_attempt(log: Path | str) -> str:
    """Return the output of the last attempt at a stage, without the command in front."""
    text = "\n" + Path(log).read_text(encoding="utf-8", errors="replace")
    return text.rpartition("\n$ ")[2].partition("\n")[2]


def surroundings(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return versions, code and machine, for the record of an attempt with environment variables."""
    commit, processor = "", platform.machine()
    if _output("git", "rev-parse", "--show-toplevel") == str(Path(__file__).resolve().parents[2]):
        commit = _output("git", "rev-parse", "HEAD")  # of posnet, which may be installed in another repository's folder
    if commit and _output("git", "--no-optional-locks", "status", "--porcelain", "-uno"):
        commit += " with changes"
    with contextlib.suppress(OSError):
        if match := re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()):
            processor = match[1]
    gpus = _output("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader").splitlines()
    return {
        "commit": commit,
        "versions": {"python": platform.python_version(), **installed_versions(*PACKAGES)},
        "machine": {"host": platform.node(), "processor": processor, "cores": len(os.sched_getaffinity(0))}
        | {"threads": environment.get("OMP_NUM_THREADS", ""), "gpus": gpus},
    }


def _output(*command: str) -> str:
    """Return what a command prints, "" if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parent)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@dataclass(frozen=True)
class Work:
    """How the stages of a run are done: alone, or beside other runs.

    Attributes:
        environment: variables of commands, besides those of this process.
        others: folders of runs that train meanwhile on the same disk.
        stopped: set when commands must end.
        checked: what a check of all runs has found of this one's training, see :mod:`before_training`.
        is_alone: whether it is said of stages that they were done before.
    """

    report: ProgressReporter = field(default_factory=ProgressReporter)
    environment: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[Path] = ()
    stopped: threading.Event = field(default_factory=threading.Event)
    checked: Any = None
    is_alone: bool = True

    def refuse_stopped(self) -> None:
        """Raise InterruptedError if commands must end."""
        if self.stopped.is_set():
            raise InterruptedError


@dataclass(eq=False)
class CommandStage:
    """A command of a run, done once.

    A command of posnet may leave values as JSON (:func:`posnet_fairseq.shared.results.leave_result`), which the
    record of the attempt has as ``result``.

    Attributes:
        made: the file that it makes, None if none in particular. A finished stage whose file is gone is done again.
        source: the file that it is made of, or None. A finished stage is done again when this has changed. What is
            done again may have other settings than before.
        settings: what its outcome depends on: plain values by name, those of options by flag.
        remedy: what to do if these have changed (default: how to do it again).
        growing: settings, the first a number. A stage that was done with less of that goes on, with the others as they
            are now.
        measure: returns what the record of an attempt has besides time and memory, by name; called when it has ended.
        prepare: called before the command, with nobody else at work in the folder, or before there is one.
        task: does in this process what the command would, and returns lines for the log; None: the command is run.
        texts: files outside the run's folder that it is made of, besides its source.
    """

    run: Path
    name: str
    command: list[str]
    made: Path | None = None
    source: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    remedy: str = ""
    growing: Sequence[str] = ()
    measure: Callable[[], Mapping[str, float]] = dict
    prepare: Callable[[], None] = lambda: None
    task: Callable[[], Sequence[str]] | None = None
    texts: Sequence[Path] = ()

    @property
    def log(self) -> Path:
        """The file with the output of all attempts."""
        return self.run / f"{self.name}.log"

    @property
    def record(self) -> Record:
        """Its record, as it is now."""
        record = Record(self.run / f"{self.name}.json")
        record.content["settings"] = earlier_records.updated(record.content["settings"], self.settings)
        return record

    @property
    def grows(self) -> bool:
        """Whether it was done with less of what may grow."""
        return bool(self.growing) and self.record.is_exceeded(self.growing[0], self.settings[self.growing[0]])

    def is_done(self) -> bool:
        """Return whether nothing is left to do; refuse other settings than a stage was begun with that goes on."""
        record, settings, grows = self.record, dict(self.settings), self.grows
        if record.finished and self.made and (not self.made.exists() or self._is_outdated(self.made, record)):
            return False
        if grows:
            settings |= {name: then for name, then in record.content["settings"].items() if name in self.growing}
        if different := record.differences(settings):
            verb = "finished" if record.finished else "begun"
            remedy = self.remedy or f"To do it again, remove {shown(self.run / self.name)}.json."
            raise UsageError(
                f"{shown(self.run)}: {self.name} was {verb} with other options ({'; '.join(different)}). {remedy}"
            )
        return record.finished and not grows

    def _is_outdated(self, made: Path, record: Record) -> bool:
        for path, then in zip(self.texts, record.content.get("texts", ()), strict=False):  # none in earlier versions
            if path.exists() and not are_intact(path.parent, {path.name: then}):
                return True
        source = self.source
        if source is None or not source.exists():
            return False
        if files := record.content.get("files"):
            return not are_intact(source.parent, files)
        return made.stat().st_mtime_ns < source.stat().st_mtime_ns  # by an earlier version, which noted no files

    def perform(self, lock: int, environment: Mapping[str, str], watch: Callable[[], None]) -> None:
        """Do the stage, and keep the record of the attempt. A command inherits the lock of the folder.

        ``watch`` is called again and again while a command runs; what it raises ends the command.
        """
        record = self.record
        record.content["files"] = describe([self.source] if self.source else [])
        record.content["texts"] = [state for path in self.texts for state in describe([path]).values()]
        record.begin(self.settings, command=self.command, **surroundings(environment))
        began = time.perf_counter()
        with open(self.log, "a", encoding="utf-8", errors="surrogateescape") as log:
            log.write(f"$ {shlex.join(self.command)}\n")
            log.flush()
            if self.task:
                outcome, error, measured = self._do_task(log)
            else:
                outcome, error, measured = self._run_command(log, lock, environment, watch)
        if outcome == "finished" and self.made and not self.made.exists():
            outcome = "made nothing"
        seconds, load = round(time.perf_counter() - began, 1), round(os.getloadavg()[0], 2)
        # load_average: processes that wanted a core, in the last minute
        record.end(outcome, seconds=seconds, load_average=load, **measured, **self.measure())
        if error:
            raise error
        if outcome != "finished":
            kind = Diverged if measured.get("result", {}).get("diverged") else UsageError
            raise kind(f"{self.name} of {shown(self.run.name)}: {outcome}. {self._last_words()}")

    def _do_task(self, log: TextIO) -> tuple[str, BaseException | None, dict[str, Any]]:
        try:
            log.writelines(f"{line}\n" for line in (self.task() if self.task else ()))
        except BaseException as error:
            log.write(f"error: {error}\n")
            failed = isinstance(error, Exception) and not isinstance(error, InterruptedError)
            if failed and explain(error) is None:
                return f"{type(error).__name__}: {error}", None, {}
            return "failed" if failed else "interrupted", error, {}
        return "finished", None, {}

    def _run_command(
        self, log: TextIO, lock: int, environment: Mapping[str, str], watch: Callable[[], None]
    ) -> tuple[str, BaseException | None, dict[str, Any]]:
        """Run the command; return its outcome, what ended it, and what the record has of it."""
        note = self.run / f".{self.name}.result"
        note.unlink(missing_ok=True)  # of an attempt that was killed
        with contextlib.suppress(OSError):  # else this process's memory at most would count as the command's
            Path("/proc/self/clear_refs").write_text("5")
        process = start(
            repaired(self.command),
            {**environment, PLACE: str(note.absolute())},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[lock],  # a run that was killed is not begun again beside processes of it that live on
            start_new_session=True,  # torchrun and its processes are stopped as one
        )
        interruption = None
        try:
            ended = 0
            while not ended:
                time.sleep(STEP)
                watch()
                ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        except BaseException as error:
            interruption = error
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        outcome = f"stopped by signal {-code}" if code < 0 else f"exit code {code}" if code else "finished"
        measured: dict[str, Any] = {
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
            "peak_memory_bytes": usage.ru_maxrss * 1024,  # of the largest process
        }
        if isinstance(result := json_if_whole(note), dict):
            measured["result"] = result
        note.unlink(missing_ok=True)
        return "interrupted" if interruption else outcome, interruption, measured

    def _last_words(self) -> str:
        text = last_attempt(self.log)
        lines = [line.strip() for line in re.findall(r".*\w.*", text) if "ChildFailedError" not in line]
        errors = [line for line in lines if "Error: " in line]
        words = last_error(text) or (errors or lines or [""])[-1]
        return f"{words} (log: {shown(self.log)})" if words else f"See {shown(self.log)}."


def do(
    stage: CommandStage,
    work: Work | None = None,
    unit: str = "",
    total: int | None = None,
    watch: Callable[[Bar], None] = lambda bar: None,
) -> bool:
    """Do a stage, alone or beside others, with its progress shown; return whether it was done before.

    ``unit`` and ``total`` are of what its bar counts. ``watch`` is called again and again while the command runs.
    """
    work = work or Work()
    if stage.is_done():
        if work.is_alone:
            work.report.say(f"{stage.run.name}: {stage.name} is done")
        return True
    with work.report.stage(f"{stage.run.name}: {stage.name}", unit, total) as bar:

        def look() -> None:
            work.refuse_stopped()
            watch(bar)

        is_new = not stage.run.exists()
        if is_new:  # before the folder is made: what is refused leaves none
            stage.prepare()
        with exclusive_lock(stage.run, PATIENCE) as lock:
            if not stage.is_done():  # by another process, meanwhile
                if not is_new:
                    stage.prepare()
                stage.perform(lock, {**VARIABLES, **os.environ, **work.environment}, look)
    return False
