"""Runs side by side, each on its share of the machine."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from posnet_fairseq.runs.command_stage import DONE, Work
from posnet_fairseq.runs.devices import Share
from posnet_fairseq.runs.run_settings import RunSettings
from posnet_fairseq.runs.single_run import run
from posnet_fairseq.runs.training import progress
from posnet_fairseq.shared.errors import UsageError, counted
from posnet_fairseq.shared.failures import explain
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import Record

STEP = 1.0  # seconds between two looks at the logs


def _updates(settings: RunSettings) -> int:
    with contextlib.suppress(OSError, LookupError):  # its stage says what is wrong with the log
        return progress(settings.run / "train.log")[0]
    return 0


def _is_trained(settings: RunSettings) -> bool:
    with contextlib.suppress(UsageError):  # of a damaged record, its stage says so
        return Record(settings.run / "train.json").finished
    return False


class _Remarks(ProgressReporter):
    """Passes lines of a run on, once if all runs say them, and counts the stages that were done before."""

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


def failures(
    runs: Sequence[RunSettings], shares: Sequence[Share], then: Callable[[RunSettings, Work], None] | None = None
) -> dict[RunSettings, str]:
    """Start runs in order, in parallel on shares of the machine, and return an error message for each that failed.

    ``then`` is called after each run.
    """
    report, stopped, said = ProgressReporter(), threading.Event(), set[str]()
    updates, running = {each: _updates(each) for each in runs}, set[RunSettings]()
    free = list(shares)  # one for each thread

    def do(settings: RunSettings) -> str:
        share, remarks = free.pop(0), _Remarks(report, said)
        others = [other.run for other in runs if other != settings and not _is_trained(other)]
        running.add(settings)
        try:
            here = dataclasses.replace(settings, gpus=share.gpus or settings.gpus)
            work = Work(remarks, share.environment, others, stopped)
            run(here, work)
            if then:
                then(here, work)
        except SystemExit as error:
            return f"a command ended with exit code {error.code}, see above"
        except Exception as error:  # nobody else is told of it
            return (explain(error) or f"{type(error).__name__}: {error}").rstrip(".")
        finally:
            running.discard(settings)
            updates[settings] = _updates(settings)
            free.append(share)
        if remarks.done >= len(settings.stages):  # more with several test sets
            report.say(f"{settings.run.name} is done")
        return ""

    total = sum(each.updates for each in runs)
    with report.bar("runs", "updates", total) as bar, ThreadPoolExecutor(len(shares)) as pool:
        bar.go_on_from(sum(updates.values()))
        outcomes = {each: pool.submit(do, each) for each in runs}
        try:
            while wait(outcomes.values(), STEP).not_done:
                # Other logs do not grow; reading all of them would take time from the trainings.
                updates |= {each: _updates(each) for each in running.copy()}
                bar.move_to(sum(updates.values()))
        except BaseException:
            stopped.set()
            pool.shutdown(cancel_futures=True)
            report.say("interrupted; progress is saved. Run the same command to continue.")
            raise
    return {each: why for each, outcome in outcomes.items() if (why := outcome.result())}


def do_all(
    runs: Sequence[RunSettings],
    shares: Sequence[Share],
    tolerated: str | None = None,
    then: Callable[[RunSettings, Work], None] | None = None,
) -> Collection[RunSettings]:
    """Do runs as :func:`failures`; return those whose failure has the words ``tolerated``, which do not matter."""
    failed = failures(runs, shares, then)
    passed_over = {each for each, why in failed.items() if tolerated is not None and tolerated in why}
    sentences = [f"{each.run.name}: {why}" for each, why in failed.items() if each not in passed_over]
    if sentences:
        raise UsageError(
            f"{len(sentences)} of {counted(len(runs), 'run')} failed ({'; '.join(sentences)}). The others are kept; "
            "fix the cause and run again."
        )
    return passed_over
