"""Base class of BLEU, chrF and TER: sacreBLEU counts, on several processes."""

import functools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric as Sacrebleu

from posnet_eval.metrics.base import FloatArray, Metric, MetricOptions, Segment
from posnet_fairseq.shared.processes import in_order

logging.getLogger("sacrebleu").setLevel(logging.ERROR)  # the remarks on the data say what it warns of

BLOCK = 256  # segments that a process is given at once


class SacrebleuMetric(Metric):
    """A metric whose statistics are sacreBLEU's own."""

    def __init__(self, options: MetricOptions, sacrebleu: Sacrebleu) -> None:
        super().__init__(options)
        self._sacrebleu = sacrebleu
        self._sacrebleu.num_refs = options.references

    def details(self) -> dict[str, str]:
        """Return sacreBLEU's signature."""
        info = {key: value for key, value in self._sacrebleu.get_signature().info.items() if value is not None}
        info["version"] = info.pop("version")  # the last one
        return {key: ("no", "yes")[value] if isinstance(value, bool) else str(value) for key, value in info.items()}

    def statistics(self, segments: Sequence[Segment]) -> Iterator[tuple[Sequence[int], FloatArray]]:
        """Yield positions and statistics of blocks of segments, see :meth:`Metric.statistics`."""
        # Segments with equal references are neighbors: the n-grams of these references are counted once.
        order = sorted(range(len(segments)), key=lambda position: segments[position].references)
        blocks = [order[start : start + BLOCK] for start in range(0, len(order), BLOCK)]
        processes = min(self.options.processes, len(blocks)) or 1
        parts = in_order(lambda block: self.count([segments[position] for position in block]), blocks, processes)
        yield from zip(blocks, parts, strict=True)

    def count(self, segments: Sequence[Segment]) -> FloatArray:
        """Return (len(segments), K) statistics, which sacreBLEU counts one segment at a time."""
        rows = np.empty((len(segments), self.width))
        for row, segment in zip(rows, segments, strict=True):
            known = _reference_info(self._sacrebleu, segment.references)
            text = self._sacrebleu._preprocess_segment(segment.hypothesis)
            row[:] = self._sacrebleu._compute_segment_statistics(text, known)
        return rows


@functools.lru_cache(maxsize=1)
def _reference_info(sacrebleu: Sacrebleu, references: tuple[str, ...]) -> dict[str, Any]:
    return sacrebleu._extract_reference_info([sacrebleu._preprocess_segment(line) for line in references])
