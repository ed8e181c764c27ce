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
from typing import Any

from posnet_fairseq.shared.common_options import FAIRSEQS
from posnet_fairseq.shared.criterions import PREFIX
from posnet_fairseq.shared.errors import UsageError, last_error
from posnet_fairseq.shared.processes import ending_with_this, repaired
from posnet_fairseq.shared.progress import Bar, ProgressReporter, shown
from posnet_fairseq.shared.records import Record, are_intact, describe, installed_versions
from posnet_fairseq.shared.stages import exclusive_lock

DONE = " is done"  # said of a stage that was finished before
PATIENCE = 10.0  # seconds to wait for a run's folder: processes that load data outlive a killed training by some
STEP = 0.5  # seconds between two looks at a command that runs
PACKAGES = ("posnet", *FAIRSEQS, "torch", "numpy", "sentencepiece", "subword-nmt", "sacrebleu")
# Variables of commands, unless they are set: memory in large pages where Linux gives them to programs that ask; logs in
# UTF-8 in any locale.
VARIABLES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PYTHONIOENCODING": "utf-8:backslashreplace"}
# Options that say where and how fast a command computes, not what: a run may go on with others.
FREE = (
    *("--cpu", "--bf16", "--fp16", "--ddp-backend", "--distributed-backend", "--distributed-world-size"),
    *("--load-checkpoint-on-all-dp-ranks", "--max-tokens", "--update-freq", "--tensorboard-logdir", "--num-workers"),
    *("--processes", "--reset-dataloader", "--compile", "--wandb-project"),
    "--finetune-from-model",  # a path: what the file has is recorded
)
# Values that mean the same: earlier versions trained with fairseq's own, which compute the same.
SAME = {
    ("--optimizer", "fused_adam"): "adam",
    ("--criterion", f"{PREFIX}label_smoothed_cross_entropy"): "label_smoothed_cross_entropy",
    ("--criterion", f"{PREFIX}cross_entropy"): "cross_entropy",
}


def last_attempt(log: Path | str) -> str:
    """Return the output of the last attempt at a stage, without the command in front."""
    text = "\n" + Path(log).read_text(encoding="utf-8", errors="replace")
    return text.rpartition("\n$ ")[2].partition("\n")[2]


def settings_of(
    command: Sequence[str], more: Mapping[str, str] | None = None, places: Mapping[str, object] | None = None
) -> dict[str, str]:
    """Return the options that the outcome of a command depends on, by name, without :data:`FREE`.

    A switch has the value "", other arguments are called "argument 1", "argument 2" ... ``more`` are values that are
    not among the arguments. The names of places stand for folders, which may be moved.
    """
    settings: dict[str, str] = {}
    name = None
    for argument in command[1:]:
        for place, folder in (places or {}).items():
            argument = re.sub(rf"(^|=){re.escape(str(folder))}(?=/|$)", rf"\1{place}", argument)
        if re.match(r"--?[A-Za-z]", argument):
            name = argument
            settings[name] = ""
        elif name is not None:
            settings[name] = f"{settings[name]} {argument}".strip()
        else:
            settings[f"argument {len(settings) + 1}"] = argument
    settings |= more or {}
    return {name: SAME.get((name, value), value) for name, value in settings.items() if name not in FREE}


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
    """

    report: ProgressReporter = field(default_factory=ProgressReporter)
    environment: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[Path] = ()
    stopped: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False)
class CommandStage:
    """A command of a run, done once.

    Attributes:
        made: the file that it makes, None if none in particular. A finished stage whose file is gone is done again.
        source: the file that it is made of, or None. A finished stage is done again when this has changed. What is
            done again may have other settings than before.
        settings: what it depends on; None: the command's own, see :func:`settings_of`.
        remedy: what to do if these have changed (default: how to do it again).
        growing: settings, the first a number. A stage that was done with less of that goes on, with the others as they
            are now.
        measure: returns what the record of an attempt has besides time and memory, by name; called when it has ended.
        prepare: called before the command, with nobody else at work in the folder, or before there is one.
    """

    run: Path
    name: str
    command: list[str]
    made: Path | None = None
    source: Path | None = None
    settings: Mapping[str, str] | None = None
    remedy: str = ""
    growing: Sequence[str] = ()
    measure: Callable[[], Mapping[str, float]] = dict
    prepare: Callable[[], None] = lambda: None

    @property
    def log(self) -> Path:
        """The file with the output of all attempts."""
        return self.run / f"{self.name}.log"

    @property
    def record(self) -> Record:
        """Its record, as it is now."""
        return Record(self.run / f"{self.name}.json")

    def _depends(self) -> dict[str, str]:
        return dict(settings_of(self.command) if self.settings is None else self.settings)

    def is_done(self) -> bool:
        """Return whether nothing is left to do; refuse other settings than a stage was begun with that goes on."""
        record, settings = self.record, self._depends()
        if record.finished and self.made and (not self.made.exists() or self._is_outdated(self.made, record)):
            return False
        grows = self.growing and record.is_exceeded(self.growing[0], int(settings[self.growing[0]]))
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
        source = self.source
        if source is None or not source.exists():
            return False
        if files := record.content.get("files"):
            return not are_intact(source.parent, files)
        return made.stat().st_mtime_ns < source.stat().st_mtime_ns  # by an earlier version, which noted no files

    def perform(self, lock: int, environment: Mapping[str, str], watch: Callable[[], None]) -> None:
        """Run the command, which inherits the lock of the folder, and keep the record of the attempt.

        ``watch`` is called again and again meanwhile; what it raises ends the command.
        """
        record = self.record
        record.content["files"] = describe([self.source] if self.source else [])
        record.begin(self._depends(), command=self.command, **surroundings(environment))
        start = time.perf_counter()
        with open(self.log, "a", encoding="utf-8", errors="surrogateescape") as log:
            log.write(f"$ {shlex.join(self.command)}\n")
            log.flush()
            process = subprocess.Popen(
                repaired(self.command),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[lock],  # a run that was killed is not begun again beside processes of it that live on
                preexec_fn=ending_with_this(),
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
        if interruption:
            outcome = "interrupted"
        elif not code and self.made and not self.made.exists():
            outcome = "made nothing"
        record.end(
            outcome,
            seconds=round(time.perf_counter() - start, 1),
            cpu_seconds=round(usage.ru_utime + usage.ru_stime, 1),
            peak_memory_bytes=usage.ru_maxrss * 1024,  # of the largest process
            load_average=round(os.getloadavg()[0], 2),  # processes that wanted a core, in the last minute
            **self.measure(),
        )
        if interruption:
            raise interruption
        if outcome != "finished":
            raise UsageError(f"{self.name} of {shown(self.run.name)}: {outcome}. {self._last_words()}")

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
) -> None:
    """Do a stage, alone or beside others, with its progress shown, unless it is done.

    ``unit`` and ``total`` are of what its bar counts. ``watch`` is called again and again while the command runs.
    """
    work = work or Work()
    if stage.is_done():
        work.report.say(f"{stage.run.name}: {stage.name}{DONE}")
        return
    with work.report.stage(f"{stage.run.name}: {stage.name}", unit, total) as bar:

        def look() -> None:
            if work.stopped.is_set():
                raise InterruptedError
            watch(bar)

        is_new = not stage.run.exists()
        if is_new:  # before the folder is made: what is refused leaves none
            stage.prepare()
        with exclusive_lock(stage.run, PATIENCE) as lock:
            if not stage.is_done():  # by another process, meanwhile
                if not is_new:
                    stage.prepare()
                stage.perform(lock, {**VARIABLES, **os.environ, **work.environment}, look)
