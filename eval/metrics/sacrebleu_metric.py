"""What BLEU, chrF and TER have in common: sacreBLEU counts, on several processes."""

import functools
import logging

import numpy as np

from posnet_eval.metrics.base import Metric
from posnet_fairseq.shared.processes import in_order

BLOCK = 256  # segments that a process is given at once


class SacrebleuMetric(Metric):
    """A metric whose statistics are sacreBLEU's own.

    Args:
        options: :class:`posnet_eval.metrics.base.MetricOptions`.
        counting: sacreBLEU's metric.
    """

    def __init__(self, options, counting):
        super().__init__(options)
        logging.getLogger("sacrebleu").setLevel(logging.ERROR)  # what it warns of, the remarks on the data say
        self._counting = counting
        self._counting.num_refs = options.references

    def details(self):
        """sacreBLEU's signature."""
        info = {key: value for key, value in self._counting.get_signature().info.items() if value is not None}
        info["version"] = info.pop("version")  # the last one
        return {key: _word(value) for key, value in info.items()}

    def statistics(self, segments):
        """See :meth:`posnet_eval.metrics.base.Metric.statistics`."""
        # Segments of the same references after each other: their n-grams are counted once.
        order = sorted(range(len(segments)), key=lambda place: segments[place].references)
        blocks = [order[start : start + BLOCK] for start in range(0, len(order), BLOCK)]
        processes = min(self.options.processes, len(blocks)) or 1
        parts = in_order(lambda block: self.count([segments[place] for place in block]), blocks, processes)
        yield from zip(blocks, parts, strict=True)

    def prepared(self, segments):
        """Hypotheses, and first references, as sacreBLEU prepares them: tokenised, lower-cased."""
        prepare = self._counting._preprocess_segment
        return [prepare(segment.hypothesis) for segment in segments], [prepare(one.references[0]) for one in segments]

    def count(self, segments):
        """(len(segments), K) statistics, counted by sacreBLEU one by one."""
        rows = np.empty((len(segments), self.width))
        for row, segment in zip(rows, segments, strict=True):
            known = _reference_info(self._counting, segment.references)
            text = self._counting._preprocess_segment(segment.hypothesis)
            row[:] = self._counting._compute_segment_statistics(text, known)
        return rows


def _word(value):
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


@functools.lru_cache(maxsize=1)
def _reference_info(counting, references):
    return counting._extract_reference_info([counting._preprocess_segment(line) for line in references])
