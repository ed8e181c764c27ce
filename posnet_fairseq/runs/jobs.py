"""Runs side by side, each on its share of the machine."""

import dataclasses
import queue
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from posnet_fairseq.runs.command_stage import DONE, Work
from posnet_fairseq.runs.devices import Share
from posnet_fairseq.runs.run_settings import RunSettings
from posnet_fairseq.runs.single_run import run
from posnet_fairseq.runs.training import progress
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import Record

STAGES = ("train", "average", "precompute", "translate")
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
        except (OSError, LookupError):  # its stage says what is wrong with it
            return 0

    @property
    def is_trained(self) -> bool:
        """Whether its training is finished. Of a damaged record, its stage says so."""
        try:
            return Record(self.run / "train.json").finished
        except UsageError:
            return False

    def do(self, work: Work, gpus: int | None) -> None:
        """Do its stages, with a number of GPUs, or None on CPUs."""
        run(dataclasses.replace(self.settings, stages=self.stages, gpus=gpus or self.settings.gpus), work)


class _Remarks(ProgressReporter):
    """Passes lines of a job on, once if all jobs say them, and counts the stages that were done before."""

    def __init__(self, report: ProgressReporter, said: set[str]):
        super().__init__(quiet=True)
        self._report, self._said = report, said
        self.done = 0

    def say(self, text: str) -> None:
        """Print a line."""
        self.done += text.endswith(DONE)
        if not text.endswith(DONE) and text not in self._said:
            self._said.add(text)
            self._report.say(text)


class JobPool:
    """Does jobs, in order, on as many shares of the machine side by side."""

    def __init__(self, jobs: Sequence[RunJob], shares: Sequence[Share]):
        self._jobs, self._workers = jobs, len(shares)
        self._shares: queue.SimpleQueue[Share] = queue.SimpleQueue()  # that are free
        for share in shares:
            self._shares.put(share)
        self._updates = {job: job.updates for job in jobs}  # done
        self._running: set[RunJob] = set()
        self._said: set[str] = set()
        self._stopped = threading.Event()

    def work(self) -> dict[RunJob, str]:
        """Do all jobs; return a sentence for each that failed."""
        self._report = ProgressReporter()
        total = sum(job.settings.updates for job in self._jobs)
        with self._report.bar("runs", "updates", total) as bar, ThreadPoolExecutor(self._workers) as pool:
            bar.go_on_from(sum(self._updates.values()))
            outcomes = {job: pool.submit(self._do, job) for job in self._jobs}
            try:
                while wait(outcomes.values(), STEP).not_done:
                    # Other logs do not grow; reading all of them would take time from the trainings.
                    self._updates |= {job: job.updates for job in self._running.copy()}
                    bar.move_to(sum(self._updates.values()))
            except BaseException:
                self._stopped.set()
                pool.shutdown(cancel_futures=True)
                self._report.say("interrupted; progress is saved. Run the same command to continue.")
                raise
        return {job: why for job, outcome in outcomes.items() if (why := outcome.result())}

    def _do(self, job: RunJob) -> str:
        """Do a job; return why it failed, "" if it did not."""
        share, remarks = self._shares.get(), _Remarks(self._report, self._said)
        others = [other.run for other in self._jobs if other != job and not other.is_trained]
        self._running.add(job)
        try:
            job.do(Work(remarks, share.environment, others, self._stopped), share.gpus)
        except (Exception, SystemExit) as error:  # nobody else is told of it
            return (explain(error) or f"{type(error).__name__}: {error}").rstrip(".")
        finally:
            self._running.discard(job)
            self._updates[job] = job.updates
            self._shares.put(share)
        if remarks.done >= len(job.stages):  # more with several test sets
            self._report.say(f"{job.run.name} is done")
        return ""


def do_all(jobs: Sequence[RunJob], shares: Sequence[Share], tolerated: str | None = None) -> Collection[RunJob]:
    """Do jobs, some side by side; return those whose failure has the words ``tolerated``, which do not matter."""
    failed = JobPool(jobs, shares).work()
    passed_over = {job for job, why in failed.items() if tolerated is not None and tolerated in why}
    sentences = [f"{job.run.name}: {why}" for job, why in failed.items() if job not in passed_over]
    if sentences:
        raise UsageError(
            f"{len(sentences)} of {len(jobs)} runs failed ({'; '.join(sentences)}). The others are kept; fix the cause "
            "and run again."
        )
    return passed_over
