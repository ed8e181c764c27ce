"""What the results of a study say: scores and differences with their intervals, and courses of the trainings."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from statistics import fmean, median
from typing import Any

import numpy as np

from posnet_eval.metrics.base import FloatArray, Metric
from posnet_eval.statistics import significance
from posnet_eval.statistics.results import Score, deviation
from posnet_eval.statistics.seeds import Contrast, Runs, SeedVariance
from posnet_fairseq.studies.compression import unpack
from posnet_fairseq.studies.metrics import metrics_of
from posnet_fairseq.studies.protocol import Study

RESAMPLES, SEED = 1000, 12345  # of the paired bootstrap, as in posnet-score
LENGTHS = (1, 10, 20, 30, 40)  # words of the reference at which groups of sentences begin; the last is open

Result = Mapping[str, Any]


class Analysis:
    """The results of a study, pooled over seeds.

    Args:
        study: its protocol.
        results: of the runs of each system, see :func:`posnet_fairseq.studies.results.read_all`; at least one.

    Attributes:
        systems: with results, in the protocol's order.
        test_sets: names.
        metrics: of posnet-score and of the literature, by name.
    """

    def __init__(self, study: Study, results: Mapping[str, Sequence[Result]]):
        self.study, self.results = study, results
        self.systems = [system.name for system in study.systems if system.name in results]
        self.baselines = [name for name in study.baselines if name in results]
        first = results[self.systems[0]][0]
        self.metrics: dict[str, Metric] = metrics_of(first["data"]["target"], study.literature)
        self.test_sets = list(first["test_sets"])
        self._rows: dict[tuple[str, ...], FloatArray] = {}
        self._scored: dict[tuple[str, ...], Runs] = {}

    def title(self, test_set: str) -> str:
        """What a test set has, and its name."""
        return f"{self.study.test_sets[test_set]} ({test_set})"

    def seeds(self, system: str) -> list[int]:
        """The seeds of a system that have results."""
        return [result["seed"] for result in self.results[system]]

    def mean(self, system: str, part: str, figure: str) -> float | None:
        """The mean over seeds of a figure in a part of the results; None if a run lacks it."""
        found = [result[part].get(figure) for result in self.results[system]]
        return None if None in found else fmean(found)

    def statistics(self, system: str, test_set: str, metric: str, precision: str = "float32") -> FloatArray:
        """(R, N, K) statistics of N segments in R runs."""
        key = (system, test_set, metric, precision)
        if key not in self._rows:
            runs = [result["test_sets"][test_set][precision] for result in self.results[system]]
            self._rows[key] = np.stack([unpack(run[metric]["segments"]) for run in runs])
        return self._rows[key]

    def _runs(self, system: str, test_set: str, metric: str, precision: str = "float32") -> Runs:
        """The scores of a system's runs, and those on resampled test sets, the same ones for all systems."""
        key = (system, test_set, metric, precision)
        if key not in self._scored:
            rows, made = self.statistics(*key), self.metrics[metric]
            sums = significance.bootstrap_sums(significance.side_by_side([rows]), RESAMPLES, SEED)
            self._scored[key] = Runs(made.corpus(rows.sum(1)), made.corpus(sums.reshape(RESAMPLES, *rows.shape[::2])))
        return self._scored[key]

    def score(self, system: str, test_set: str, metric: str, precision: str = "float32") -> Score:
        """The mean of the runs' scores, with the interval of the bootstrap."""
        runs = self._runs(system, test_set, metric, precision)
        low, high = significance.interval(runs.means)
        values = tuple(runs.scores.tolist())
        return Score(runs.value, values, deviation(values), low, high, half_width=0.5 * (high - low))

    def seed_variance(self, test_set: str, metric: str) -> SeedVariance:
        """How scores vary over seeds, pooled over all systems with several."""
        return SeedVariance.of(self._runs(system, test_set, metric) for system in self.systems)

    def contrast(self, a: str, b: str, test_set: str, metric: str) -> Contrast:
        """The difference of system a from system b, with the uncertainty of other sentences and of other seeds."""
        variance = self.seed_variance(test_set, metric)
        return variance.contrast(*(self._runs(system, test_set, metric) for system in (a, b)))

    def by_length(self, test_set: str, metric: str) -> list[tuple[str, int, dict[str, float]]]:
        """Scores of groups of sentences by the length of their reference.

        Returns:
            the lengths, the number of sentences and the score of each system, for each group that is not empty.
        """
        words = self.statistics(self.systems[0], test_set, "bleu")[0, :, 1]
        place = np.digitize(words, LENGTHS[1:])
        groups = []
        for number, start in enumerate(LENGTHS):
            chosen = place == number
            if not chosen.any():
                continue
            last = f"–{LENGTHS[number + 1] - 1}" if number + 1 < len(LENGTHS) else "+"
            scores = {
                system: float(
                    self.metrics[metric].corpus(self.statistics(system, test_set, metric).mean(0)[chosen].sum(0))
                )
                for system in self.systems
            }
            groups.append((f"{start}{last}", int(chosen.sum()), scores))
        return groups

    def course(self, system: str) -> tuple[FloatArray, FloatArray]:
        """Updates, and the perplexity of the validation set after them: geometric means over seeds, one's as it is."""
        courses = [result["training"]["validation"] for result in self.results[system]]
        shared = sorted(set.intersection(*(set(course["updates"]) for course in courses)))
        values = np.array(
            [
                [dict(zip(course["updates"], course["perplexity"], strict=True))[update] for update in shared]
                for course in courses
            ]
        )
        means = np.exp(np.log(values).mean(0)) if len(values) > 1 else values[0]
        return np.array(shared, dtype=np.float64), means

    @cached_property
    def baseline_seconds(self) -> float | None:
        """CPU seconds of an update of the first baseline, the median of what was measured after all runs, or None."""
        costs = [run["training"].get("cost") for run in chain.from_iterable(self.results.values())]
        found = [cost["other_seconds"] for cost in costs if cost]
        return median(found) if found else None

    def seconds_per_update(self, system: str) -> float | None:
        """CPU seconds of an update, without validations and checkpoints, as if on one machine; None if not known.

        These are the first baseline's, times what an update costs relative to one of it, the mean over seeds.
        """
        if system == self.study.baselines[0]:
            return self.baseline_seconds
        costs = [result["training"].get("cost") for result in self.results[system]]
        if self.baseline_seconds is None or None in costs:
            return None
        return self.baseline_seconds * fmean(cost["relative"] for cost in costs)

    def cpu_seconds(self, system: str) -> float | None:
        """CPU seconds of the updates of a training until its end, the mean over seeds; None if not known."""
        seconds, updates = self.seconds_per_update(system), self.mean(system, "training", "updates")
        return None if seconds is None or updates is None else seconds * updates

    def translation_seconds(self, system: str, test_set: str, precision: str) -> list[float | None]:
        """CPU seconds of the translation of a test set by each run, as if on one machine; None if not known.

        A run's machine is as fast as its updates of the first baseline are.
        """
        found: list[float | None] = []
        for result in self.results[system]:
            seconds, cost = result["test_sets"][test_set][precision]["cpu_seconds"], result["training"].get("cost")
            known = seconds is not None and cost is not None and self.baseline_seconds is not None
            found.append(seconds * self.baseline_seconds / cost["other_seconds"] if known else None)
        return found

    def perplexity_at(self, system: str, updates: float) -> float | None:
        """The perplexity of the validation set after a number of updates, interpolated; None beyond the training."""
        known, values = self.course(system)
        if np.isclose(updates, known[-1], rtol=1e-9):  # computed from seconds that were computed from it
            updates = known[-1]
        if not known[0] <= updates <= known[-1]:
            return None
        return float(np.exp(np.interp(updates, known, np.log(values))))

    def perplexity_after(self, system: str, seconds: float) -> float | None:
        """The perplexity of the validation set after CPU seconds of training; None if not known."""
        of_update = self.seconds_per_update(system)
        return self.perplexity_at(system, seconds / of_update) if of_update else None

    @cached_property
    def least_cpu_seconds(self) -> float | None:
        """The CPU seconds of the shortest course: until then, all systems can be compared. None if none are known."""
        known = [(self.seconds_per_update(system), float(self.course(system)[0][-1])) for system in self.systems]
        return min((seconds * updates for seconds, updates in known if seconds is not None), default=None)

    def signature(self, test_set: str, metric: str) -> str:
        """The signature of a metric, as posnet-score prints it."""
        details: dict[str, str] = dict(
            self.results[self.systems[0]][0]["test_sets"][test_set]["float32"][metric]["signature"]
        )
        parts = {"nrefs": details.pop("nrefs", "1"), "bs": str(RESAMPLES), "seed": str(SEED)} | details
        return f"{self.metrics[metric].label}: {'|'.join(f'{name}:{value}' for name, value in parts.items())}"


def front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """The names of points for which no other has less cost and as high a score, by cost: the Pareto front.

    Args:
        points: cost and score by name.
    """
    kept: list[str] = []
    best = -np.inf
    for name, (_, score) in sorted(points.items(), key=lambda item: (item[1][0], -item[1][1])):
        if score > best:
            kept.append(name)
            best = score
    return kept
