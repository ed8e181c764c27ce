"""Stages of a run: commands whose outputs lie side by side in its folder, each with RUN/NAME.log and RUN/NAME.json.

A stage that is finished is left alone, unless its file is gone or is older than the file that it is made of; one that
was cut short is done again; other settings than before are refused.
"""

import contextlib
import os
import re
import resource
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from posnet_fairseq.runs.record import last_attempt, settings_of, surroundings
from posnet_fairseq.shared import stages
from posnet_fairseq.shared.errors import UsageError, last_error
from posnet_fairseq.shared.processes import ending_with_this
from posnet_fairseq.shared.progress import Bar, ProgressReporter, shown
from posnet_fairseq.shared.records import Record

DONE = " is done"  # said of a stage that was finished before
PATIENCE = 10.0  # seconds to wait for a run's folder: processes that load data outlive a killed training by some
STEP = 0.5  # seconds between two looks at a command that runs


@dataclass(frozen=True)
class Work:
    """How the stages of a run are done: alone, or beside other runs.

    Attributes:
        environment: variables of commands, besides those of this process.
        others: folders of runs that train meanwhile on the same disk.
    """

    report: ProgressReporter = field(default_factory=ProgressReporter)
    environment: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[Path] = ()
    stopped: threading.Event = field(default_factory=threading.Event)


class CommandStage(stages.Stage):
    """A command of a run, done once.

    Args:
        made: the file that it makes, None if none in particular. A finished stage whose file is gone is done again.
        source: the file that it is made of, or None. A finished stage is done again when this is newer.
        settings: what it depends on; None: the command's own, see :func:`posnet_fairseq.runs.record.settings_of`.
        growing: a setting, a number. A stage that was done with less of it goes on.

    Attributes:
        environment: variables of the command, besides those of this process.
        prepare: called before the command, with nobody else at work in the folder.
        watch: called again and again while the command runs.
    """

    def __init__(
        self,
        run: Path,
        name: str,
        command: Sequence[str],
        made: Path | None = None,
        source: Path | None = None,
        settings: Mapping[str, str] | None = None,
        remedy: str | None = None,
        growing: str | None = None,
    ):
        self.run, self.name, self.command = run, name, list(command)
        self.made, self.source = made, source
        self.settings = settings_of(command) if settings is None else settings
        self._growing = growing
        self._remedy = remedy or f"To do it again, remove {shown(run / name)}.json."
        self.log = run / f"{name}.log"
        self.environment: Mapping[str, str] = {}
        self.prepare: Callable[[], None] = lambda: None
        self.watch: Callable[[], None] = lambda: None

    @property
    def record(self) -> Record:
        """Its record, as it is now."""
        return Record(self.run / f"{self.name}.json")

    def is_done(self) -> bool:
        """Return whether nothing is left to do."""
        record, settings, name = self.record, self.settings, self._growing
        grows = name is not None and record.is_exceeded(name, int(settings[name]))
        if name is not None and grows:
            settings = {**settings, name: record.content["settings"][name]}
        if different := record.differences(settings):
            verb = "finished" if record.finished else "begun"
            raise UsageError(
                f"{shown(self.run)}: {self.name} was {verb} with other options ({'; '.join(different)}). {self._remedy}"
            )
        if grows or not record.finished or (self.made and not self.made.exists()):
            return False
        if not (self.made and self.source and self.source.exists()):
            return True
        return self.made.stat().st_mtime_ns >= self.source.stat().st_mtime_ns

    def perform(self, report: ProgressReporter, lock: int) -> None:
        """Run the command, and keep the record of the attempt."""
        self.prepare()
        record = self.record
        environment = os.environ | self.environment
        record.begin(self.settings, command=self.command, **surroundings(environment))
        start = time.perf_counter()
        code, usage, interruption = self._run(lock, environment)
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
        )
        if interruption:
            raise interruption
        if outcome != "finished":
            raise UsageError(f"{self.name} of {shown(self.run.name)}: {outcome}. {self._last_words()}")

    def _run(
        self, lock: int, environment: Mapping[str, str]
    ) -> tuple[int, resource.struct_rusage, BaseException | None]:
        """Return the command's exit code, what it used, and the exception that interrupted it, if any."""
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(f"$ {shlex.join(self.command)}\n")
            log.flush()
            process = subprocess.Popen(
                self.command,
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
                self.watch()
                ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        except BaseException as error:
            interruption = error
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode, usage, interruption

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
    watcher: Callable[[ProgressReporter, Bar], Callable[[], None]] | None = None,
) -> None:
    """Do a stage with its progress shown, unless it is done.

    Args:
        work: how; None: alone.
        watcher: function from a report and the bar to what is called again and again while the command runs.
    """
    work = work or Work()
    report, stage.environment = work.report, work.environment
    if stage.is_done():
        report.say(f"{stage.run.name}: {stage.name}{DONE}")
        return
    with report.stage(f"{stage.run.name}: {stage.name}", unit, total) as bar:
        watch = watcher(report, bar) if watcher else lambda: None

        def look() -> None:
            if work.stopped.is_set():
                raise InterruptedError
            watch()

        stage.watch = look
        with stages.exclusive_lock(stage.run, PATIENCE) as lock:
            stages.run(stage, report, lock)  # nothing, if another process did it meanwhile
