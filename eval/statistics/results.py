"""The one object that every table, file and picture of a comparison is made from."""

from dataclasses import dataclass, field

import numpy as np

SIGNIFICANT = 0.05
SYMBOLS = ("†", "‡")  # a difference from the first baseline, from the second


@dataclass(frozen=True)
class MetricInfo:
    """A metric as shown.

    Attributes:
        name: on command lines, as "chrf".
        label: in tables, as "chrF".
        higher_is_better: False for TER.
        signature: all that makes its scores reproducible.
    """

    name: str
    label: str
    higher_is_better: bool
    signature: str


@dataclass(frozen=True)
class Score:
    """A system's score on a test set, on a scale of 0 to 100 (COMET may leave it).

    Attributes:
        value: mean of the runs' scores.
        runs: score of each run (seed).
        deviation: standard deviation over runs (n − 1); None for one run.
        low, high: the bootstrap's 95% interval, of the runs' segments pooled.
        half_width: half of it, sacreBLEU's ±.
    """

    value: float
    runs: tuple[float, ...]
    deviation: float | None
    low: float
    high: float
    half_width: float


@dataclass(frozen=True)
class Difference:
    """How system `a` differs from system `b` on a test set.

    Attributes:
        value: score of a − score of b, of the runs' segments pooled.
        low, high: the bootstrap's 95% interval of it.
        p: of the test, as sacreBLEU computes it; None if the outputs are the same.
        p_shift: two-sided p of the bootstrap moved to the null hypothesis (Noreen, 1989): the share of resamples whose
            difference is at least as far from their mean as `value` is from 0; 1 if the outputs are the same.
        win_rate: share of resamples in which a is better (ties count half).
        better: 1 if a is better, −1 if it is worse, 0 if the scores are equal.
        same: all outputs are the same.
    """

    value: float
    low: float
    high: float
    p: float | None
    p_shift: float
    win_rate: float
    better: int
    same: bool

    @property
    def arrow(self):
        """ "↑" significantly better, "↓" significantly worse, "=" the same outputs, else ""."""
        if self.same:
            return "="
        if self.p > SIGNIFICANT:
            return ""
        return {1: "↑", -1: "↓", 0: ""}[self.better]

    def reversed(self):
        """b compared to a."""
        return Difference(
            -self.value, -self.high, -self.low, self.p, self.p_shift, 1 - self.win_rate, -self.better, self.same
        )


@dataclass(frozen=True)
class Bucket:
    """Scores of the segments of which something lies in a range.

    Attributes:
        label: of the range, as "1-9".
        size: segments in it.
        scores: {system: {metric name: score of the runs' segments pooled}}.
    """

    label: str
    size: int
    scores: dict


@dataclass(frozen=True)
class Remark:
    """Something in the data that a reader of the scores should know.

    Attributes:
        system: whose output it concerns; "" for source and reference.
        text: what it is, as "3 empty lines".
        lines: numbers of the first lines concerned, from 1.
    """

    system: str
    text: str
    lines: tuple[int, ...] = ()


@dataclass(frozen=True)
class TestSetResult:
    """All about one test set.

    Attributes:
        name: as shown.
        languages: of source and target, "" if not known.
        metrics: in the order of the table.
        scores: {system: {metric name: :class:`Score`}}, without systems that are missing.
        differences: {(a, b): {metric name: :class:`Difference`}} of every pair, a behind b in the list of systems.
        missing: {system: why it was not scored}.
        by_length: :class:`Bucket` of length in words (characters where a language has no spaces), of
            the source, or where there is none, of the first reference.
        remarks: :class:`Remark` of all outputs.
        sources: N lines; empty if there were none.
        references: one tuple of N lines for each reference translation.
        outputs: {system: tuple of runs, each N lines}.
        segments: {metric name: {system: (N,) scores of segments, mean over runs}}.
    """

    __test__ = False  # pytest takes it for tests

    name: str
    languages: tuple[str, str]
    metrics: tuple[MetricInfo, ...]
    scores: dict
    differences: dict
    missing: dict
    by_length: tuple[Bucket, ...]
    remarks: tuple[Remark, ...]
    sources: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]
    outputs: dict
    segments: dict = field(repr=False)

    def difference(self, a, b, metric):
        """How a differs from b."""
        if (a, b) in self.differences:
            return self.differences[a, b][metric]
        return self.differences[b, a][metric].reversed()

    @property
    def size(self):
        """N, the number of segments."""
        return len(self.references[0])


@dataclass(frozen=True)
class Comparison:
    """Systems compared on test sets.

    Attributes:
        systems: names, in the order of the table.
        labels: {system: how it is called in tables}.
        baselines: none, one or two of the systems.
        test_sets: a result for each.
        test: "bs" (paired bootstrap) or "ar" (approximate randomisation).
        resamples: of the bootstrap, from which intervals come also with "ar".
        trials: of the approximate randomisation; 0 with "bs".
        seed: of both.
        versions: {package: version}.
        columns: {title: {system: text or number}}, facts that tables show before the scores; none by default.
        files: {name: SHA-256} of a report's other files, by which a later run knows them as its own.
    """

    systems: tuple[str, ...]
    labels: dict
    baselines: tuple[str, ...]
    test_sets: tuple[TestSetResult, ...]
    test: str
    resamples: int
    trials: int
    seed: int
    versions: dict
    columns: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)

    def marks(self, test_set, system, metric):
        """[(symbol, arrow)] of significant differences from the baselines, (symbol, "=") of the same outputs.

        Args:
            test_set: one of `test_sets`.
            system: name.
            metric: name.
        """
        found = []
        for symbol, baseline in zip(SYMBOLS, self.baselines, strict=False):
            if baseline == system or baseline not in test_set.scores or system not in test_set.scores:
                continue
            arrow = test_set.difference(system, baseline, metric).arrow
            if arrow:
                found.append((symbol, arrow))
        return found


def deviation(values):
    """Standard deviation of a sample (n − 1), None of a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None
