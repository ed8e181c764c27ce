"""What every metric is to the rest: numbers for each segment, and scores from their sums."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Segment(NamedTuple):
    """A translated line with what it is held against."""

    source: str
    hypothesis: str
    references: tuple[str, ...]


@dataclass(frozen=True)
class MetricOptions:
    """What metrics are told; each reads what concerns it.

    Attributes:
        language: of the target, as "de"; "" if it is not known.
        references: number of reference translations.
        lowercase: whether translations and references are lower-cased first (TER always does).
        tokenize: sacreBLEU's tokeniser for BLEU; None: by the language.
        processes: how many count at once.
        bleurt_model, comet_model: a hub name or a local folder.
        comet_encoder: folder with tokeniser and configuration of COMET's encoder; None: as its checkpoint says.
        cpu: no GPU even if there is one.
    """

    language: str = ""
    references: int = 1
    lowercase: bool = False
    tokenize: str | None = None
    processes: int = 1
    bleurt_model: str = "lucadiliello/BLEURT-20"
    comet_model: str = "Unbabel/wmt20-comet-da"
    comet_encoder: str | None = None
    cpu: bool = False


class Metric(ABC):
    """A metric of :class:`Segment`.

    A corpus score is a function of the sum over segments of some numbers, its statistics: n-gram counts of BLEU, or
    score and 1 of a metric that is averaged. So the score of any resampled corpus comes from sums of rows.

    Attributes:
        name: on command lines.
        label: in tables.
        higher_is_better: False for error rates.
        needs_source: whether the source has a part in it.
        width: K, the numbers of a segment.
    """

    name: str
    label: str
    higher_is_better = True
    needs_source = False
    width: int

    def __init__(self, options):
        self.options = options

    @property
    def given(self):
        """What the user asked for, if that alone does not say what is computed (as the name of a model); else ""."""
        return ""

    @abstractmethod
    def details(self):
        """All that scores depend on beside the text: dict of short strings, for the signature and as the cache's key.

        Raises:
            UsageError: the metric cannot run here, such as when its model is not there.
        """

    @abstractmethod
    def statistics(self, segments):
        """Compute statistics.

        Args:
            segments: list of different :class:`Segment`.

        Yields:
            (positions in the list, (len(positions), K) float64), in any order, each position once. Parts are small
            enough to be kept one by one.
        """

    def release(self):  # noqa: B027  (most have nothing to let go of)
        """Let go of what was loaded; it is loaded again if it is needed."""

    @abstractmethod
    def corpus(self, sums):
        """Scores from (..., K) sums of statistics; shape (...)."""

    def by_segment(self, statistics):
        """(N,) scores of single segments from their (N, K) statistics."""
        return self.corpus(statistics)


class MeanMetric(Metric):
    """A metric of segments that a corpus has the mean of; statistics are (score, 1)."""

    width = 2

    def corpus(self, sums):
        """Means, 0 where nothing was summed."""
        return sums[..., 0] / np.maximum(sums[..., 1], 1)
