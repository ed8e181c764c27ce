"""What the results of a study say: scores and differences with their intervals, and courses of the trainings."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from posnet_eval.inputs.plan import RESAMPLES, SEED
from posnet_eval.metrics.base import FloatArray
from posnet_eval.statistics.results import Bucket, Score
from posnet_eval.statistics.significance import Contrast, Runs, SeedVariance, bootstrap_sums
from posnet_eval.statistics.summary import buckets, in_ranges, score_of, signature
from posnet_fairseq.studies.protocol import Study
from posnet_fairseq.studies.results import RunResult

LENGTHS = (1, 10, 20, 30, 40)  # words of the reference at which groups of sentences begin; the last is open


class JoinedScore(NamedTuple):
    """BLEU where sentences are joined to a line, and the length of translations as a share of the references'."""

    bleu: Score
    length: float


class Analysis:
    """The results of a study, pooled over seeds, of the systems that have some."""

    def __init__(self, study: Study, results: Mapping[str, Sequence[RunResult]]):
        self.study, self.results = study, results
        self.systems = [name for name in study.systems if name in results]
        self.baselines = [name for name in study.baselines if name in results]
        self._first = results[self.systems[0]][0]
        self.metrics = study.metrics(self._first.data.target)
        self.test_sets = list(self._first.test_sets)
        self.claims = [claim for claim in study.claims if {claim.system, claim.other} <= set(self.systems)]
        self.seeds_vary = any(len(runs) > 1 for runs in results.values())
        self._scored: dict[tuple[str, ...], dict[str, Runs]] = {}

    def title(self, test_set: str) -> str:
        """Return what a test set has, and its name."""
        return f"{self.study.test_sets[test_set]} ({test_set})"

    def size(self, test_set: str) -> int:
        """Return the number of lines of a test set."""
        return len(self._first.test_sets[test_set].statistics["bleu"]["float32"])

    def mean(self, system: str, figure: Callable[[RunResult], float]) -> float:
        """Return the mean over seeds of a figure of results."""
        return fmean(map(figure, self.results[system]))

    def statistics(self, system: str, test_set: str, metric: str, precision: str = "float32") -> FloatArray:
        """Return (R, N, K) statistics of N segments in R runs."""
        return np.stack([run.test_sets[test_set].statistics[metric][precision] for run in self.results[system]])

    def _runs(self, test_set: str, metric: str, precision: str = "float32") -> dict[str, Runs]:
        """Return the scores of the runs of each system, and those on resampled test sets."""
        key = (test_set, metric, precision)
        if key not in self._scored:
            self._scored[key] = self._resampled({name: self.statistics(name, *key) for name in self.systems}, metric)
        return self._scored[key]

    def _resampled(self, statistics: Mapping[str, FloatArray], metric: str) -> dict[str, Runs]:
        sums, corpus = bootstrap_sums(statistics, RESAMPLES, SEED), self.metrics[metric].corpus
        return {system: Runs(corpus(rows.sum(1)), corpus(sums[system])) for system, rows in statistics.items()}

    def score(self, system: str, test_set: str, metric: str, precision: str = "float32") -> Score:
        """Return the mean of the runs' scores, with the interval of the bootstrap."""
        return score_of(self._runs(test_set, metric, precision)[system])

    def seed_variance(self, test_set: str, metric: str) -> SeedVariance:
        """Return how scores vary over seeds, pooled over all systems with several."""
        return SeedVariance.of(self._runs(test_set, metric).values())

    def contrast(self, a: str, b: str, test_set: str, metric: str) -> Contrast:
        """Return the difference of system a from system b, with the uncertainty of sentences and of seeds."""
        runs = self._runs(test_set, metric)
        return self.seed_variance(test_set, metric).contrast(runs[a], runs[b])

    def by_length(self, test_set: str) -> list[Bucket]:
        """Return BLEU by words of the reference, for lengths that there are."""
        statistics = {("bleu", system): self.statistics(system, test_set, "bleu") for system in self.systems}
        words = statistics["bleu", self.systems[0]][0, :, 1]
        return list(buckets(in_ranges(words, LENGTHS, "–"), self.metrics, statistics))

    @cached_property
    def joined(self) -> dict[str, dict[int, JoinedScore]]:
        """BLEU of the first test set by the number of sentences joined to a line, of systems with such runs."""
        scores: dict[str, dict[int, JoinedScore]] = {}
        for count in (1, *self.study.joined):
            known = {system: self._of_joined(runs, count) for system, runs in self.results.items()}
            statistics = {system: np.stack(rows) for system, rows in known.items() if rows}
            for system, runs in self._resampled(statistics, "bleu").items():
                scores.setdefault(system, {})[count] = JoinedScore(score_of(runs), _length(statistics[system]))
        return scores

    def _of_joined(self, runs: Sequence[RunResult], count: int) -> list[FloatArray]:
        """Return (N, K) statistics of BLEU of each run with joined sentences, with a number of them in a line."""
        if count == 1:
            return [run.test_sets[self.test_sets[0]].statistics["bleu"]["float32"] for run in runs if run.joined]
        return [run.joined[str(count)].statistics for run in runs if str(count) in run.joined]

    def course(self, system: str) -> tuple[FloatArray, FloatArray]:
        """Return updates, and the perplexity of the validation set after them: geometric means over several seeds."""
        validations = [run.training.validation for run in self.results[system]]
        courses = [dict(zip(known.updates, known.perplexity, strict=True)) for known in validations]
        shared = sorted(set.intersection(*map(set, courses)))
        values = np.array([[course[update] for update in shared] for course in courses])
        means = np.exp(np.log(values).mean(0)) if len(values) > 1 else values[0]
        return np.array(shared, dtype=np.float64), means

    @cached_property
    def baseline_seconds(self) -> float | None:
        """CPU seconds of an update of the first baseline, the median of its own runs, or None.

        Runs of other systems measured it as well, each on its own machine: these count if it has no runs here.
        """
        runs = self.results.get(self.study.baselines[0]) or chain.from_iterable(self.results.values())
        known = [run.training.cost.other_seconds for run in runs if run.training.cost]
        return median(known) if known else None

    def seconds_per_update(self, system: str) -> float | None:
        """Return CPU seconds of an update, without validations and checkpoints, as if on one machine, None if unknown.

        These are the first baseline's, times what an update costs relative to one of it, the mean over seeds.
        """
        if system == self.study.baselines[0]:
            return self.baseline_seconds
        costs = [run.training.cost for run in self.results[system]]
        known = [cost.relative for cost in costs if cost]
        return self.baseline_seconds * fmean(known) if self.baseline_seconds and all(costs) else None

    def cpu_seconds(self, system: str) -> float | None:
        """Return CPU seconds of the updates of a training until its end, the mean over seeds; None if unknown."""
        seconds = self.seconds_per_update(system)
        return seconds and seconds * self.mean(system, lambda run: run.training.updates)

    def translation_seconds(self, system: str, test_set: str, precision: str) -> list[float | None]:
        """Return CPU seconds of each run's translation of a test set, as if on one machine; None if unknown.

        A run's machine is as fast as its updates of the first baseline are.
        """
        scaled: list[float | None] = []
        for run in self.results[system]:
            seconds, cost = getattr(run.test_sets[test_set], precision).cpu_seconds, run.training.cost
            slowness = cost.other_seconds / self.baseline_seconds if cost and self.baseline_seconds else None
            scaled.append(seconds / slowness if seconds and slowness else None)
        return scaled

    def perplexity_at(self, system: str, updates: float) -> float | None:
        """Return the perplexity of the validation set after updates, interpolated; None beyond the training."""
        known, values = self.course(system)
        if np.isclose(updates, known[-1], rtol=1e-9):  # computed from seconds that were computed from it
            updates = known[-1]
        if not known[0] <= updates <= known[-1]:
            return None
        # Rounded: logarithms differ in their last digit between versions of numpy.
        return round(float(np.exp(np.interp(updates, known, np.log(values)))), 9)

    def perplexity_after(self, system: str, seconds: float) -> float | None:
        """Return the perplexity of the validation set after CPU seconds of training; None if unknown."""
        per_update = self.seconds_per_update(system)
        return self.perplexity_at(system, seconds / per_update) if per_update else None

    @cached_property
    def least_cpu_seconds(self) -> float | None:
        """The CPU seconds of the shortest course, until which all systems can be compared; None if none are known."""
        known = [(self.seconds_per_update(system), float(self.course(system)[0][-1])) for system in self.systems]
        return min((seconds * updates for seconds, updates in known if seconds is not None), default=None)

    def signature(self, test_set: str, metric: str) -> str:
        """Return the signature of a metric, as posnet-score prints it."""
        details = getattr(self._first.test_sets[test_set].float32, metric).signature
        return f"{self.metrics[metric].label}: {signature(details, bs=RESAMPLES, seed=SEED)}"


def front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of points (cost, score) that no other beats in both, by cost: the Pareto front."""
    kept: list[str] = []
    best = -np.inf
    for name, (_, score) in sorted(points.items(), key=lambda item: (item[1][0], -item[1][1])):
        if score > best:
            kept.append(name)
            best = score
    return kept


def _length(statistics: FloatArray) -> float:
    """Return the length of translations, by (R, N, K) statistics of BLEU, as a share of the references'."""
    return float(statistics[..., 0].sum() / statistics[..., 1].sum())
