"""Runs side by side: each is a posnet-run of its own, on its share of the machine."""

import os
import queue
import subprocess
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from posnet_fairseq.runs.command_stage import DONE
from posnet_fairseq.runs.machine import Share
from posnet_fairseq.runs.run_settings import RunSettings
from posnet_fairseq.runs.training import progress
from posnet_fairseq.shared.errors import UsageError, last_error
from posnet_fairseq.shared.failures import explain
from posnet_fairseq.shared.processes import ending_with_this
from posnet_fairseq.shared.progress import Bar, ProgressReporter
from posnet_fairseq.shared.records import Record

STAGES = ("train", "average", "precompute", "translate")
PROGRAM = ("posnet-run", "corpus")
STEP = 1.0  # seconds between two looks at the logs


@dataclass(frozen=True)
class RunJob:
    """A run of a system with a seed: the system's name, the settings of the run, and the stages that are done."""

    system: str
    settings: RunSettings
    stages: tuple[str, ...] = STAGES

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.settings.run

    @property
    def updates(self) -> int:
        """Number of updates that its training has done."""
        try:
            return progress(self.run / "train.log")[0]
        except (OSError, LookupError):  # its own process says what is wrong with it
            return 0

    @property
    def is_trained(self) -> bool:
        """Whether its training is finished. Of a damaged record, its own process says so."""
        try:
            return Record(self.run / "train.json").finished
        except UsageError:
            return False

    def command(self, gpus: int | None) -> list[str]:
        """Return the command that does it, with a number of GPUs, or None on CPUs."""
        share = [f"--gpus={gpus}"] if gpus else []
        return [*PROGRAM, *self.settings.arguments(), *share, *self.stages]


class JobPool:
    """Does jobs, in order, on as many shares of the machine side by side."""

    def __init__(self, jobs: Sequence[RunJob], shares: Sequence[Share]):
        self._jobs, self._workers = jobs, len(shares)
        self._shares: queue.SimpleQueue[Share] = queue.SimpleQueue()  # that are free
        for share in shares:
            self._shares.put(share)
        self._running: list[subprocess.Popen[str]] = []
        self._said: set[str] = set()
        self._stop, self._starting = False, threading.Lock()

    def work(self) -> dict[RunJob, str]:
        """Do all jobs; return a sentence for each that failed."""
        self._report = ProgressReporter()
        total = sum(job.settings.updates for job in self._jobs)
        with self._report.bar("runs", "updates", total) as bar, ThreadPoolExecutor(self._workers) as pool:
            bar.go_on_from(sum(job.updates for job in self._jobs))
            outcomes = {job: pool.submit(self._do, job) for job in self._jobs}
            try:
                while wait(outcomes.values(), STEP).not_done:
                    self._look(bar)
            except BaseException:
                ended = sum(outcome.done() for outcome in outcomes.values())
                with self._starting:
                    self._stop = True
                    for process in self._running:
                        process.terminate()
                pool.shutdown(cancel_futures=True)
                self._report.say(
                    f"interrupted: {ended} of {len(self._jobs)} runs have ended; all is kept. The same command goes on "
                    "where they were."
                )
                raise
        return {job: why for job, outcome in outcomes.items() if (why := outcome.result())}

    def _look(self, bar: Bar) -> None:
        """Show how far the jobs are."""
        bar.move_to(sum(job.updates for job in self._jobs))

    def _do(self, job: RunJob) -> str:
        """Do a job, and print what it says, once if all say it; return why it failed, "" if it did not."""
        share = self._shares.get()
        done, said = 0, [""]
        try:
            with self._start(job, share) as process:
                for line in map(str.rstrip, process.stderr or ()):
                    said.append(line)
                    done += line.endswith(DONE)
                    if not line.endswith(DONE) and line not in self._said:
                        self._said.add(line)
                        self._report.say(line)
            code = process.returncode
        except Exception as error:  # nobody else is told of it
            return explain(error) or f"{type(error).__name__}: {error}"
        finally:
            self._shares.put(share)
        if done >= len(job.stages):  # more with several test sets
            self._report.say(f"{job.run.name} is done")
        return (last_error("\n".join(said)) or said[-1] or f"exit code {code}").rstrip(".") if code else ""

    def _start(self, job: RunJob, share: Share) -> "subprocess.Popen[str]":
        """Start the process of a job."""
        others = [other.run for other in self._jobs if other != job and not other.is_trained]
        environment = os.environ | share.environment
        environment |= {"POSNET_OTHER_RUNS": ":".join(map(str, others))}  # they need room, too
        with self._starting:
            if self._stop:
                raise InterruptedError
            process = subprocess.Popen(
                job.command(share.gpus),
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                preexec_fn=ending_with_this(),
            )
            self._running.append(process)
        return process


def do_all(jobs: Sequence[RunJob], shares: Sequence[Share], tolerated: str | None = None) -> Collection[RunJob]:
    """Do jobs, some side by side; return those whose failure has the words ``tolerated``, which do not matter.

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
