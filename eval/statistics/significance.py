"""Significance tests of differences between systems, on resampled corpora that all systems and metrics share.

The paired bootstrap of Koehn (2004) and approximate randomization (Riezler and Maxwell, 2005), with the p-values of
sacreBLEU's PairedTest for an equal seed, or the two-sided p-value of the bootstrap (Noreen, 1989). A resampled corpus
is a row of counts, one for each segment; its statistics, for all systems at once, are a matrix product.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from posnet_eval.metrics.base import FloatArray, Metric
from posnet_eval.statistics.results import Difference

AT_ONCE = 2**21  # segments of resampled corpora that are held in memory
TAIL = 40  # 1 / 40 of the samples lies below a 95% interval, and 1 / 40 above
POWER = 0.8
Key = TypeVar("Key")


@dataclass(frozen=True)
class Runs:
    """The runs of a system, by a metric on a test set."""

    scores: FloatArray  # (R,) of R runs
    samples: FloatArray  # (B, R) on B resampled test sets, the same ones for all systems

    @cached_property
    def value(self) -> float:
        """The mean of the scores."""
        return float(self.scores.mean())

    @cached_property
    def means(self) -> FloatArray:
        """(B,) means over runs on resampled test sets."""
        return self.samples.mean(1)


@dataclass(frozen=True)
class Contrast:
    """The difference of two systems, or the score of one, with its uncertainty."""

    value: float  # score of the first system − score of the second
    error: float  # standard error
    freedom: float = np.inf  # degrees of freedom, for Student's t; infinite: the normal distribution

    @property
    def low(self) -> float:
        """The lower end of the 95% interval."""
        return self.value - self._errors(0.975)

    @property
    def high(self) -> float:
        """The upper end of the 95% interval."""
        return self.value + self._errors(0.975)

    @property
    def p(self) -> float:
        """The two-sided p-value of no difference; 1 where nothing varies, so that nothing can be said."""
        from scipy.special import stdtr  # takes as long to import as a small test set to score

        return float(2 * stdtr(self.freedom, -abs(self.value) / self.error)) if self.error else 1.0

    @property
    def detectable(self) -> float:
        """The true difference that a test at 5% finds with a probability of 80%."""
        return self._errors(0.975) + self._errors(POWER)

    def _errors(self, probability: float) -> float:
        """Return a quantile of the distribution about the value."""
        from scipy.special import stdtrit

        return float(stdtrit(self.freedom, probability)) * self.error


@dataclass(frozen=True)
class SeedVariance:
    """How the scores of a system's runs vary, pooled over all systems with several, also for the systems with one.

    The variance of a difference of means over runs is S − cE + cD, where c = 1/R₁ + 1/R₂ for R₁ and R₂ runs. S, its
    variance over resampled test sets, has all that depends on the sentences, and D what each seed changes in a score;
    E, the variance over resampled test sets of the runs about their mean, is in both, and is counted once.
    """

    whole: float  # D, the variance of the score over runs
    sentences: float  # E, the part of it that comes from the choice of the test set's sentences
    freedom: int  # degrees of freedom, the number of runs less one for each system; 0 without several runs

    @classmethod
    def of(cls, systems: Iterable[Runs]) -> "SeedVariance":
        """Return the pooled variance of systems; 0 if none has several runs."""
        whole = sentences = 0.0
        freedom = 0
        for runs in systems:
            whole += float(((runs.scores - runs.value) ** 2).sum())
            sentences += float((runs.samples - runs.means[:, None]).var(axis=0, ddof=1).sum())
            freedom += len(runs.scores) - 1
        return cls(whole / max(freedom, 1), sentences / max(freedom, 1), freedom)

    @property
    def deviation(self) -> float | None:
        """The standard deviation of a score over seeds; None without several runs."""
        return float(np.sqrt(self.whole)) if self.freedom else None

    def contrast(self, runs: Runs, others: Runs | None = None) -> Contrast:
        """Return the difference of a system from another one, or a system's score, with its uncertainty.

        Its degrees of freedom are those of the seeds divided by the seeds' share of the variance, since the part of
        the sentences is known well: Cochran and Cox's test (1950) to first order. Fewer would find too little where
        seeds hardly differ; Satterthwaite's, more, find too much where seeds are few.
        """
        share = 1 / len(runs.scores) + (1 / len(others.scores) if others else 0.0)
        samples = runs.means - others.means if others else runs.means
        of_sentences = max(float(samples.var(ddof=1)) - share * self.sentences, 0.0)
        of_seeds = share * self.whole
        variance = of_sentences + of_seeds
        freedom = self.freedom * variance / of_seeds if of_seeds else np.inf
        return Contrast(runs.value - (others.value if others else 0.0), float(np.sqrt(variance)), freedom)


def bootstrap_sums(statistics: Mapping[Key, FloatArray], resamples: int, seed: int) -> dict[Key, FloatArray]:
    """Return (B, R, K) sums over B corpora drawn with replacement from N segments, of (R, N, K) statistics."""
    generator = np.random.default_rng(seed)

    def draw(rows: int, size: int) -> NDArray[np.generic]:
        drawn = generator.choice(size, size=(rows, size), replace=True)
        drawn += size * np.arange(rows)[:, None]
        return np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size)

    return _sums(statistics, resamples, draw)


def shuffled_sums(statistics: Mapping[Key, FloatArray], trials: int, seed: int) -> dict[Key, FloatArray]:
    """Return (T, R, K) sums over T random halves of N segments, which systems keep when they exchange the others."""
    generator = np.random.default_rng(seed)
    return _sums(statistics, trials, lambda *shape: generator.integers(2, size=shape, dtype=bool))


def _sums(
    statistics: Mapping[Key, FloatArray], rows: int, draw: Callable[[int, int], NDArray[np.generic]]
) -> dict[Key, FloatArray]:
    if not statistics:
        return {}
    # One product for all: columns of all runs stand side by side.
    columns = np.concatenate([of.transpose(1, 0, 2).reshape(of.shape[1], -1) for of in statistics.values()], axis=1)
    # numpy draws bits 32 at a time: with whole words in every part, the parts equal a single draw
    part = max(32, AT_ONCE // len(columns) // 32 * 32)
    sums = np.empty((rows, columns.shape[1]))
    for start in range(0, rows, part):
        stop = min(start + part, rows)
        np.matmul(draw(stop - start, len(columns)).astype(np.float64), columns, out=sums[start:stop])
    ends = np.cumsum([of.shape[0] * of.shape[2] for of in statistics.values()])
    parts = zip(statistics.items(), np.split(sums, ends[:-1], axis=1), strict=True)
    return {key: found.reshape(rows, *of.shape[::2]) for (key, of), found in parts}


def interval(samples: FloatArray) -> tuple[float, float]:
    """Return lower and upper end of the middle 95% of (B,) samples."""
    ordered = np.sort(samples)
    cut = len(ordered) // TAIL
    return float(ordered[cut]), float(ordered[-1 - cut])


def compare(
    metric: Metric,
    a: Runs,
    b: Runs,
    same: bool,
    randomized: FloatArray | None = None,
    contrast: Contrast | None = None,
    is_shift: bool = False,
) -> Difference:
    """Return how system a differs from system b by a metric.

    Args:
        metric: metric of the scores.
        a, b: the runs of both.
        same: whether all their outputs are equal.
        randomized: (1 + T,) differences, as observed and after T random exchanges of segments.
        contrast: their difference with the uncertainty of seeds, too; if given, interval and p are its.
        is_shift: whether p is that of the bootstrap moved to the null hypothesis, else it is sacreBLEU's.
    """
    value, differences = a.value - b.value, a.means - b.means
    low, high = (contrast.low, contrast.high) if contrast else interval(differences)
    magnitudes = np.abs(differences)
    extremes = magnitudes - magnitudes.mean() > abs(value)
    if randomized is not None:
        extremes = np.abs(randomized[1:]) > np.abs(randomized[0])
    is_tie = value == 0 and not differences.any()  # equal statistics of other texts, such as other spaces
    shifted = np.abs(differences - differences.mean()) >= abs(value)
    p = contrast.p if contrast else 1.0 if is_tie else _share(shifted if is_shift else extremes)
    direction = 1 if metric.higher_is_better else -1
    wins = ((direction * differences > 0).mean() + (direction * differences >= 0).mean()) / 2
    return Difference(
        value=value,
        low=low,
        high=high,
        p=None if same else p,
        p_shift=None if contrast else 1.0 if same else _share(shifted),
        win_rate=float(wins),
        better=direction * int(np.sign(value)),
        same=same,
    )


def _share(extremes: NDArray[np.bool_]) -> float:
    # + 1: the observed corpus is one that chance could have drawn (Phipson and Smyth, 2010)
    return (int(extremes.sum()) + 1) / (len(extremes) + 1)
