"""Runs side by side: each is a posnet-run of its own, on its share of the machine."""

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from posnet_fairseq.runs.command_stage import DONE
from posnet_fairseq.runs.machine import Share
from posnet_fairseq.runs.record import Record
from posnet_fairseq.runs.run_settings import RunSettings
from posnet_fairseq.runs.training import progress
from posnet_fairseq.shared.errors import UsageError, last_error
from posnet_fairseq.shared.failures import explain
from posnet_fairseq.shared.processes import ending_with_this
from posnet_fairseq.shared.progress import Bar

STAGES = ("train", "average", "precompute", "translate")
PROGRAM = ("posnet-run", "corpus")
STEP = 1.0  # seconds between two looks at the logs


@dataclass(frozen=True)
class RunJob:
    """A run of a system with a seed.

    Attributes:
        system: name of the system.
        settings: of its run.
        stages: that are done.
    """

    system: str
    settings: RunSettings
    stages: tuple[str, ...] = STAGES

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.settings.run

    def command(self, gpus: int | None) -> list[str]:
        """The command that does it, with a number of GPUs, or None on CPUs."""
        share = [f"--gpus={gpus}"] if gpus else []
        return [*PROGRAM, *self.settings.arguments(), *share, *self.stages]


class JobPool:
    """Does jobs, some side by side.

    Args:
        jobs: in the order in which they begin.
        shares: a part of the machine for each of the jobs that work side by side.
    """

    def __init__(self, jobs: Sequence[RunJob], shares: Sequence[Share]):
        self._waiting: queue.SimpleQueue[RunJob] = queue.SimpleQueue()
        for job in jobs:
            self._waiting.put(job)
        self._jobs, self._shares = jobs, shares
        self._running: dict[RunJob, tuple[subprocess.Popen[str], TaskID, Bar]] = {}
        self._failed: dict[RunJob, str] = {}
        self._said: set[str] = set()
        self._stop, self._starting = False, threading.Lock()
        console = Console(stderr=True, force_terminal=sys.stderr.isatty(), highlight=False, soft_wrap=True)
        columns = [TextColumn(text, markup=False) for text in ("{task.fields[done]}", "{task.fields[note]}")]
        name = TextColumn("{task.description}", markup=False)
        self._progress = Progress(
            name, BarColumn(), *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self._updates = {job: progress_of(job)[0] for job in jobs}  # done
        self._ended = 0

    def work(self) -> dict[RunJob, str]:
        """Do all jobs.

        Returns:
            a sentence for each job that failed.
        """
        with self._progress:
            total = self._new_bar("runs", sum(job.settings.updates for job in self._jobs), sum(self._updates.values()))
            threads = [threading.Thread(target=self._take, args=(share,)) for share in self._shares]
            try:
                for thread in threads:
                    thread.start()
                while any(thread.is_alive() for thread in threads):
                    self._look(*total)
                    time.sleep(STEP)
            except BaseException:
                with self._starting:
                    self._stop = True
                    for process, *_ in list(self._running.values()):
                        process.terminate()
                for thread in threads:
                    thread.join()
                self._progress.console.print(
                    f"interrupted: {self._ended} of {len(self._jobs)} runs have ended; all is kept. The same command "
                    "goes on where they were."
                )
                raise
        return self._failed

    def _new_bar(self, name: str, updates: int, done: int) -> tuple[TaskID, Bar]:
        task = self._progress.add_task(name, total=updates, done="", note="")
        bar = Bar(self._progress, task, "updates", updates)
        bar.go_on_from(done)
        return task, bar

    def _take(self, share: Share) -> None:
        while not self._stop:
            try:
                job = self._waiting.get_nowait()
            except queue.Empty:
                return
            try:
                failure = self._do(job, share)
            except Exception as error:  # it would end the thread, unseen, and leave the jobs that wait
                failure = explain(error) or f"{type(error).__name__}: {error}"
            if failure:
                self._failed[job] = failure
            if not self._stop:
                self._ended += 1

    def _do(self, job: RunJob, share: Share) -> str:
        """Do a job; returns why it failed, "" if it did not."""
        task, bar = self._new_bar(job.run.name, job.settings.updates, self._updates[job])
        try:
            process = self._start(job, share, task, bar)
            if process is None:
                return ""
            done, said = 0, [""]
            for line in map(str.rstrip, process.stderr or ()):
                done += self._pass_on(line)
                said.append(line)
            code = process.wait()
        finally:
            self._running.pop(job, None)
            self._progress.update(task, visible=False)  # not removed: it may be looked at just now
        if done >= len(job.stages):  # more with several test sets
            self._progress.console.print(f"{job.run.name} is done", markup=False)
        return (last_error("\n".join(said)) or said[-1] or f"exit code {code}").rstrip(".") if code else ""

    def _start(self, job: RunJob, share: Share, task: TaskID, bar: Bar) -> subprocess.Popen[str] | None:
        """The process of a job; None if all is stopped."""
        others = [other.run for other in self._jobs if other != job and not is_finished(other.run, "train")]
        environment = os.environ | share.environment
        environment |= {"POSNET_OTHER_RUNS": ":".join(map(str, others))}  # they need room, too
        with self._starting:
            if self._stop:
                return None
            process = subprocess.Popen(
                job.command(share.gpus),
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                preexec_fn=ending_with_this(),
            )
            self._running[job] = process, task, bar
        return process

    def _pass_on(self, line: str) -> bool:
        """Print a line of a job, once if all say it; returns whether it says that a stage was done before."""
        if line.endswith(DONE):
            return True
        if line not in self._said:
            self._said.add(line)
            self._progress.console.print(line, markup=False)
        return False

    def _look(self, total: TaskID, bar_of_all: Bar) -> None:
        for job, (_, task, bar) in list(self._running.items()):
            updates, valid = progress_of(job)
            stages = (stage for stage in job.stages if not is_finished(job.run, stage))
            stage = next(stages, job.stages[-1])
            note = f"validation perplexity {valid['valid_ppl']:.1f}" if valid else ""
            self._progress.update(task, description=f"{job.run.name}: {stage}", note=note)
            if updates != bar.done:
                self._updates[job] = updates
                bar.move_to(updates)
                bar_of_all.move_to(sum(self._updates.values()))
        self._progress.update(total, note=f"{self._ended} of {len(self._jobs)} have ended")


def do_all(jobs: Sequence[RunJob], shares: Sequence[Share], tolerated: str | None = None) -> Collection[RunJob]:
    """Do jobs, some side by side.

    Args:
        jobs, shares: see :class:`JobPool`.
        tolerated: words in the sentence about a failure that does not matter; None: every failure does.

    Returns:
        the jobs with such a failure.

    Raises:
        UsageError: others failed.
    """
    failed = JobPool(jobs, shares).work()
    passed_over = {job for job, why in failed.items() if tolerated is not None and tolerated in why}
    sentences = [f"{job.run.name}: {why}" for job, why in failed.items() if job not in passed_over]
    if sentences:
        raise UsageError(
            f"{len(sentences)} of {len(jobs)} runs failed ({'; '.join(sentences)}). The others are kept; fix the cause "
            "and run again."
        )
    return passed_over


def progress_of(job: RunJob) -> tuple[int, dict[str, Any] | None]:
    """The number of updates done, and the values of the last validation or None."""
    try:
        return progress(job.run / "train.log")
    except (OSError, LookupError):  # its own process says what is wrong with it
        return 0, None


def is_finished(run: Path, stage: str) -> bool:
    """Whether a stage of a run is finished. Of a damaged record, its own process says so."""
    try:
        return Record(run / f"{stage}.json").finished
    except UsageError:
        return False
