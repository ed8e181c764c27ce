"""The uncertainty of scores of systems with several runs: of the sentences of a test set, and of the runs' seeds.

The variance of a difference of means over runs is estimated as S − cE + cD, where c = 1/R₁ + 1/R₂ for R₁ and R₂ runs:

* S, the variance over resampled test sets (paired bootstrap), has all that depends on the sentences;
* D, the variance of a system's scores over its runs, has what each seed changes in the score;
* E, the variance over resampled test sets of the runs about their mean, is in both, and is counted once.

D and E are pooled over all systems with several runs, and stand for the systems with one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from posnet_eval.metrics.base import FloatArray

POWER = 0.8


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
        means: FloatArray = self.samples.mean(1)
        return means


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
    """How the scores of a system's runs vary, pooled over systems."""

    whole: float  # variance of the score over runs, D above
    sentences: float  # the part of it that comes from the choice of the test set's sentences, E above
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
