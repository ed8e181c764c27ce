"""The interface of a metric: statistics of each segment, and scores from sums of statistics."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

WITHOUT_SPACES = ("zh", "ja")  # whose Chinese characters TER can count as words


class Segment(NamedTuple):
    """A line of a translation with its source ("" if the metric does not read it) and its references, if it does."""

    source: str
    hypothesis: str
    references: tuple[str, ...]


@dataclass(frozen=True)
class MetricOptions:
    """Settings of all metrics, of which each reads some. Models are names on the Hugging Face hub or folders."""

    language: str = ""  # the target language, as "de", "zho_Hans" or "zh-TW"; "" if it is not known
    references: int = 1  # number of reference translations of each line; -1 if lines have different numbers
    lowercase: bool = False  # lowercase translations and references before scoring (TER always does)
    tokenize: str | None = None  # sacreBLEU's tokenizer for BLEU; None: chosen by the language
    processes: int = 1  # that count n-grams and edits
    bleurt_model: str = "lucadiliello/BLEURT-20"
    comet_model: str = "Unbabel/wmt20-comet-da"
    comet_kiwi_model: str = "Unbabel/wmt22-cometkiwi-da"
    comet_encoder: str | None = None  # tokenizer and configuration of both; None: the encoder that the checkpoint names
    device: str | None = None  # cpu, cuda for all GPUs, or one, as cuda:1; None: all GPUs, or the CPU if there are none


class Metric(ABC):
    """A metric of a corpus of :class:`Segment`.

    A corpus score is a function of sums of K numbers of each segment, its statistics: n-gram counts for BLEU, or the
    segment's score and 1 for a metric that is a mean. The score of a resampled corpus therefore needs no more than a
    sum of rows.
    """

    name: str  # as in --metrics, "chrf"
    label: str  # as in tables, "chrF"
    higher_is_better = True
    needs_source = False  # whether the source is read
    needs_reference = True  # whether references are read
    # Whether segments have one reference; statistics of several are averaged, or the largest is taken: only of a
    # MeanMetric with higher_is_better.
    one_reference = False
    width: int  # K, the number of statistics of a segment

    def __init__(self, options: MetricOptions) -> None:
        self.options = options
        # Positions of segments whose end was not read, of those that statistics() was last called with, so far.
        self.cut = set[int]()

    @property
    def requested_model(self) -> str:
        """The model as the user named it, whose content that name does not determine; "" for a metric without one."""
        return ""

    def fetch(self, download: bool = True) -> None:  # noqa: B027  (most need neither)
        """Raise a UsageError if a package is missing, or a model that is not here and cannot be downloaded."""

    @abstractmethod
    def details(self) -> dict[str, str]:
        """Return what scores depend on beside the text, for the signature and as part of the cache's keys."""

    @abstractmethod
    def statistics(self, segments: Sequence[Segment]) -> Iterator[tuple[Sequence[int], FloatArray]]:
        """Yield positions among distinct segments, in any order, each once, and their (len(positions), K) statistics.

        Parts are small, so that they can be cached while the computation goes on.
        """

    def release(self) -> None:  # noqa: B027  (most have nothing to let go of)
        """Free the memory of a loaded model, which is loaded again when it is needed."""

    @abstractmethod
    def corpus(self, sums: FloatArray) -> FloatArray:
        """Return (...) scores from (..., K) sums of statistics."""

    def by_segment(self, statistics: FloatArray) -> FloatArray:
        """Return (N,) scores of single segments from their (N, K) statistics."""
        return self.corpus(statistics)


class MeanMetric(Metric):
    """A metric whose corpus score is the mean of the segments' scores; statistics are (score, 1)."""

    width = 2

    def corpus(self, sums: FloatArray) -> FloatArray:
        """Return means, 0 where nothing was summed."""
        return sums[..., 0] / np.maximum(sums[..., 1], 1)
