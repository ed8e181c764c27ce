"""Runs side by side, each on its share of the machine."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from posnet_fairseq.runs.command_stage import Work
from posnet_fairseq.runs.devices import Share
from posnet_fairseq.runs.run_settings import RunSettings
from posnet_fairseq.runs.single_run import check_trainings, is_trained, run_stages
from posnet_fairseq.runs.training import progress
from posnet_fairseq.shared.errors import UsageError, counted
from posnet_fairseq.shared.failures import explain
from posnet_fairseq.shared.progress import ProgressReporter

STEP = 1.0  # seconds between two looks at the logs


def _updates(settings: RunSettings) -> int:
    with contextlib.suppress(OSError, LookupError):  # its stage says what is wrong with the log
        return progress(settings.run / "train.log")[0]
    return 0


class _Remarks(ProgressReporter):
    """Passes lines of a run on, once if all runs say them."""

    def __init__(self, report: ProgressReporter, said: set[str]):
        super().__init__(quiet=True)
        self._report, self._said = report, said

    def say(self, text: str) -> None:
        """Print a line."""
        if text not in self._said:
            self._said.add(text)
            self._report.say(text)


def do_all(
    runs: Sequence[RunSettings],
    shares: Sequence[Share],
    tolerated: type[Exception] | tuple[()] = (),
    then: Callable[[RunSettings, Work], None] | None = None,
) -> Collection[RunSettings]:
    """Do runs, started in order, in parallel on shares of the machine; return those with a failure that is tolerated.

    ``then`` is called after each run.

    Raises:
        UsageError: others failed; the sentence has the failure of each.
    """
    report, stopped, said = ProgressReporter(), threading.Event(), set[str]()
    updates, running = {each: _updates(each) for each in runs}, set[RunSettings]()
    free = list(shares)  # one for each thread
    runs_here = [dataclasses.replace(each, gpus=shares[0].gpus or each.gpus) for each in runs]
    untrained = [each for each in runs_here if not is_trained(each)]
    checked = check_trainings(untrained) if untrained and not untrained[0].machine else {}

    def do(settings: RunSettings) -> BaseException | None:
        share, remarks = free.pop(0), _Remarks(report, said)
        others = [other.run for other in runs if other != settings and not is_trained(other)]
        running.add(settings)
        try:
            here = dataclasses.replace(settings, gpus=share.gpus or settings.gpus)
            about = checked.get(settings.system)
            work = Work(remarks, share.environment, others, stopped, about, is_alone=False)
            was_done = run_stages(here, work)
            if then:
                then(here, work)
        except (Exception, SystemExit) as error:  # nobody else is told of it
            return error
        finally:
            running.discard(settings)
            updates[settings] = _updates(settings)
            free.append(share)
        if was_done:
            report.say(f"{settings.run.name} is done")
        return None

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
    failed = {each: error for each, outcome in outcomes.items() if (error := outcome.result())}
    passed_over = {each for each, error in failed.items() if isinstance(error, tolerated)}
    sentences = [f"{each.run.name}: {_sentence(error)}" for each, error in failed.items() if each not in passed_over]
    if sentences:
        raise UsageError(
            f"{len(sentences)} of {counted(len(runs), 'run')} failed ({'; '.join(sentences)}). The others are kept; "
            "fix the cause and run again."
        )
    return passed_over


def _sentence(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"a command ended with exit code {error.code}, see above"
    return (explain(error) or f"{type(error).__name__}: {error}").rstrip(".")
