"""The results of a comparison, from which every table, file and plot is made."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from posnet_eval.inputs.hygiene import Remark
from posnet_eval.inputs.loading import Texts
from posnet_eval.inputs.plan import ROW_COLUMNS, SYMBOLS, Fact
from posnet_eval.metrics.base import FloatArray

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class MetricInfo:
    """A metric as shown in tables."""

    name: str  # as in --metrics, "chrf"
    label: str  # as in tables, "chrF"
    higher_is_better: bool
    signature: str  # everything that makes its scores reproducible


@dataclass(frozen=True)
class Score:
    """A system's score on a test set, on a scale of 0 to 100 (that of TER, BLEURT and COMET may leave it).

    Attributes:
        value: mean of the runs' scores.
        runs: score of each run (seed).
        deviation: standard deviation over runs (n − 1); None for one run.
        low, high: 95% interval: the bootstrap's, or with the test of seeds, Student's over sentences and seeds.
        half_width: half of the interval's width, sacreBLEU's ±.
    """

    value: float
    runs: tuple[float, ...]
    deviation: float | None
    low: float
    high: float
    half_width: float


@dataclass(frozen=True)
class Difference:
    """The difference of system `a` from system `b` on a test set.

    Attributes:
        value: score of a − score of b.
        low, high: 95% interval of the difference, as of a score.
        p: p-value of the test, with "shift" `p_shift`, with "bs" and "ar" as sacreBLEU computes it; None if the outputs
            are equal.
        p_shift: two-sided p-value of the bootstrap moved to the null hypothesis (Noreen, 1989): the share of resamples
            whose difference is at least as far from their mean as `value` is from 0; 1 if the outputs are equal; None
            with the test of seeds, whose p is two-sided.
        win_rate: share of resamples of sentences in which a is better (ties count half).
        better: 1 if a is better, −1 if it is worse, 0 if the scores are equal.
        same: whether all outputs are equal.
    """

    value: float
    low: float
    high: float
    p: float | None
    p_shift: float | None
    win_rate: float
    better: int
    same: bool

    @property
    def arrow(self) -> str:
        """ "↑" significantly better, "↓" significantly worse, "=" equal outputs, else ""."""
        if self.p is None:
            return "="
        if self.p > SIGNIFICANT:
            return ""
        return {1: "↑", -1: "↓", 0: ""}[self.better]

    def reversed(self) -> "Difference":
        """Return the difference of b from a."""
        return Difference(
            -self.value, -self.high, -self.low, self.p, self.p_shift, 1 - self.win_rate, -self.better, self.same
        )


@dataclass(frozen=True)
class Bucket:
    """Scores of the segments of a group, or of those whose length is in a range.

    Attributes:
        label: name of the group, or the range, as "0-9".
        size: number of segments in it.
        scores: {system: {metric name: score of these segments, mean over runs}}.
    """

    label: str
    size: int
    scores: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class TestSetResult(Texts):
    """The texts of a test set, and the results on it.

    Attributes:
        metrics: in the order of the table.
        scores: {system: {metric name: score}}, in the order of the table, without systems that are missing.
        differences: {(a, b): {metric name: difference}} of every pair, a behind b in the list of systems.
        by_length: scores by length in words (characters where a language has no spaces) of the source, or without one
            of the first reference.
        by_group: scores of groups of segments, in the order of their names.
        remarks: oddities of all outputs.
        segments: {metric name: {system: (N,) scores of segments, means over runs}}.
    """

    __test__ = False  # pytest takes it for tests

    metrics: tuple[MetricInfo, ...]
    scores: Mapping[str, Mapping[str, Score]]
    differences: Mapping[tuple[str, str], Mapping[str, Difference]]
    by_length: tuple[Bucket, ...]
    by_group: tuple[Bucket, ...]
    remarks: tuple[Remark, ...]
    segments: Mapping[str, Mapping[str, FloatArray]] = field(repr=False)

    def difference(self, a: str, b: str, metric: str) -> Difference:
        """Return the difference of system a from system b by a metric's name."""
        if (a, b) in self.differences:
            return self.differences[a, b][metric]
        return self.differences[b, a][metric].reversed()

    @property
    def seed_freedom(self) -> int:
        """The degrees of freedom of deviations over seeds: the number of runs, less one for each system."""
        return sum(len(runs) - 1 for runs in self.outputs.values())


@dataclass(frozen=True)
class Comparison:
    """Systems compared on test sets.

    Attributes:
        systems: names, in the order of the table.
        labels: {system: label in tables}.
        baselines: no, one or two of the systems.
        test_sets: results on each test set.
        test: "shift" (two-sided paired bootstrap), "bs" (paired bootstrap) or "ar" (approximate randomization), over
            sentences only, or "seeds" (bootstrap of sentences, and deviation over seeds).
        resamples: number of resamples of the bootstrap, which also gives the intervals with "ar".
        trials: number of trials of approximate randomization; 0 with other tests.
        seed: seed of both.
        versions: {package: version}.
        columns: {title: {system: text or number}}, facts that tables show before the scores.
        notes: sentences that stand below the tables.
        pictures: {title: picture as a data URI}, which the page shows.
        files: {name: SHA-256} of the other files of a report, by which later runs recognize them.
    """

    systems: tuple[str, ...]
    labels: Mapping[str, str]
    baselines: tuple[str, ...]
    test_sets: tuple[TestSetResult, ...]
    test: str
    resamples: int
    trials: int
    seed: int
    versions: Mapping[str, str]
    columns: Mapping[str, Mapping[str, Fact]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    pictures: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, str] = field(default_factory=dict)

    def marks(self, test_set: TestSetResult, system: str, metric: str) -> list[tuple[str, str]]:
        """Return (symbol, arrow) of significant differences from the baselines, (symbol, "=") of equal outputs."""
        symbols = dict(zip(self.baselines, SYMBOLS, strict=False))
        return [(symbols[name], found.arrow) for name, found in self.compared(test_set, system, metric) if found.arrow]

    def compared(self, test_set: TestSetResult, system: str, metric: str) -> list[tuple[str, Difference]]:
        """Return (baseline, difference from it) of the baselines that a system is compared with."""
        there = [name for name in self.baselines if name != system and {name, system} <= test_set.scores.keys()]
        return [(name, test_set.difference(system, name, metric)) for name in there]

    def rows(self) -> list[dict[str, Any]]:
        """Return the results as rows, as for ``pandas.DataFrame``.

        There is a row for each test set, system and metric; with two baselines, a system that is compared with both
        has a row for each of them.

        Returns:
            dicts with the keys

            * test_set, system, label, metric;
            * score, low, high, half_width, deviation: see :class:`Score`; runs: number of runs;
            * baseline: system compared with, None for a baseline itself; difference, difference_low, difference_high,
              p, p_shift, win_rate: see :class:`Difference`; mark: its arrow;
            * signature: see :class:`MetricInfo`;
            * titles of :attr:`columns`.

            What does not apply is None.
        """
        shown = [(test_set, system) for test_set in self.test_sets for system in test_set.scores]
        return [row for test_set, system in shown for row in self._rows(test_set, system)]

    def _rows(self, test_set: TestSetResult, system: str) -> Iterator[dict[str, Any]]:
        facts = {title: column.get(system) for title, column in self.columns.items()}
        for info in test_set.metrics:
            score = test_set.scores[system][info.name]
            values = [test_set.name, system, self.labels[system], info.label]
            values += [score.value, score.low, score.high, score.half_width, score.deviation, len(score.runs)]
            against: list[list[Any]] = [
                [name, of.value, of.low, of.high, of.p, of.p_shift, of.win_rate, of.arrow]
                for name, of in self.compared(test_set, system, info.name)
            ]
            for compared in against or [[None] * 8]:
                yield dict(zip(ROW_COLUMNS, [*values, *compared, info.signature], strict=True)) | facts
