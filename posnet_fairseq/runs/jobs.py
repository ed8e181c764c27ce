"""Runs side by side: each is a posnet-run of its own, on its share of the machine."""

import os
import queue
import subprocess
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from posnet_fairseq.runs.command_stage import DONE
from posnet_fairseq.runs.machine import Share
from posnet_fairseq.runs.record import Record
from posnet_fairseq.runs.run_settings import RunSettings
from posnet_fairseq.runs.training import progress as updates_of
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain
from posnet_fairseq.shared.processes import ending_with_this

STAGES = ("train", "average", "precompute", "translate")
PROGRAM = ("posnet-run", "corpus")
STEP = 1.0  # seconds between two looks at the logs


@dataclass(frozen=True)
class RunJob:
    """A run of a system with a seed.

    Attributes:
        system: name of the system.
        settings: of its run.
    """

    system: str
    settings: RunSettings

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.settings.run


class JobPool:
    """Does jobs, some side by side.

    Args:
        jobs: in the order in which they begin.
        shares: a part of the machine for each of the jobs that work side by side.
        settings: names of environment variables that are settings of all jobs, which runs are given by flags.
    """

    def __init__(self, jobs: Sequence[RunJob], shares: Sequence[Share], settings: Collection[str]):
        self._waiting: queue.SimpleQueue[RunJob] = queue.SimpleQueue()
        for job in jobs:
            self._waiting.put(job)
        self._jobs, self._shares, self._settings = jobs, shares, settings
        self._running: dict[RunJob, tuple[subprocess.Popen[str], TaskID]] = {}
        self._failed: dict[RunJob, str] = {}
        self._said: set[str] = set()
        self._stop, self._starting = False, threading.Lock()
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._progress = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)

    def work(self) -> dict[RunJob, str]:
        """Do all jobs.

        Returns:
            a sentence for each job that failed.
        """
        with self._progress as progress:
            total = progress.add_task("runs", total=len(self._jobs), note="")
            threads = [threading.Thread(target=self._take, args=(share, total)) for share in self._shares]
            try:
                for thread in threads:
                    thread.start()
                while any(thread.is_alive() for thread in threads):
                    self._look()
                    time.sleep(STEP)
            except BaseException:
                with self._starting:
                    self._stop = True
                    for process, _ in list(self._running.values()):
                        process.terminate()
                for thread in threads:
                    thread.join()
                raise
        return self._failed

    def _take(self, share: Share, total: TaskID) -> None:
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
            self._progress.advance(total)

    def _do(self, job: RunJob, share: Share) -> str:
        """Do a job; returns why it failed, "" if it did not."""
        task = self._progress.add_task(escape(job.run.name), total=job.settings.updates, note="")
        try:
            process = self._start(job, share, task)
            if process is None:
                return ""
            done, last = 0, ""
            for line in map(str.rstrip, process.stderr or ()):
                done += self._pass_on(line)
                last = line if "error: " in line or "error: " not in last else last
            code = process.wait()
        finally:
            self._running.pop(job, None)
            self._progress.remove_task(task)
        if done == len(STAGES):
            self._progress.console.print(f"{job.run.name} is done", markup=False)
        return (last.partition("error: ")[2] or last or f"exit code {code}").rstrip(".") if code else ""

    def _start(self, job: RunJob, share: Share, task: TaskID) -> subprocess.Popen[str] | None:
        """The process of a job; None if all is stopped."""
        others = [other.run for other in self._jobs if other != job and not is_trained(other.run)]
        own = {*RunSettings.variables(), *self._settings}
        environment: dict[str, Any] = {name: value for name, value in os.environ.items() if name not in own}
        environment |= share.environment | {"POSNET_OTHER_RUNS": ":".join(map(str, others))}  # they need room, too
        gpus = [f"--gpus={share.gpus}"] if share.gpus else []
        with self._starting:
            if self._stop:
                return None
            process = subprocess.Popen(
                [*PROGRAM, *job.settings.arguments(), *gpus, *STAGES],
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                preexec_fn=ending_with_this(),
            )
            self._running[job] = process, task
        return process

    def _pass_on(self, line: str) -> bool:
        """Print a line of a job, once if all say it; returns whether it says that a stage was done before."""
        if line.endswith(DONE):
            return True
        if line not in self._said:
            self._said.add(line)
            self._progress.console.print(line, markup=False)
        return False

    def _look(self) -> None:
        for job, (_, task) in list(self._running.items()):
            try:
                updates, valid = updates_of(job.run / "train.log")
            except (OSError, LookupError):  # its own process says what is wrong with it
                continue
            note = f"validation perplexity {valid['valid_ppl']:.1f}" if valid else ""
            self._progress.update(task, completed=updates, note=note)


def is_trained(run: Path) -> bool:
    """Whether the training of a run is finished. Of a damaged record, its own process says so."""
    try:
        return Record(run / "train.json").finished
    except UsageError:
        return False
