"""chrF: F-score of character n-grams (Popović, 2015), as sacreBLEU computes it."""

from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics import CHRF

from posnet_eval.metrics.base import FloatArray, MetricOptions, Segment
from posnet_eval.metrics.ngrams import counts, lengths, matches
from posnet_eval.metrics.sacrebleu_metric import SacrebleuMetric

ORDER, BETA = CHRF.CHAR_ORDER, CHRF.BETA


class Chrf(SacrebleuMetric):
    """chrF. Statistics: n-grams of the hypothesis, of the reference and of both, for n = 1 to 6."""

    name, label = "chrf", "chrF"
    width = 3 * ORDER

    def __init__(self, options: MetricOptions) -> None:
        super().__init__(options, CHRF(lowercase=options.lowercase))

    def count(self, segments: Sequence[Segment]) -> FloatArray:
        """Return sacreBLEU's statistics; with one reference all segments are counted together, ten times as fast."""
        texts = [["".join(line.split()) for line in lines] for lines in self.prepared(segments)]
        found = matches(list(zip(*texts, strict=True)), ORDER) if self.options.references == 1 else None
        if found is None:
            return super().count(segments)
        hypothesis, reference = (counts(lengths(lines), ORDER) for lines in texts)
        rows = np.stack([np.where(reference > 0, hypothesis, 0), reference, found], axis=2)
        return rows.reshape(len(segments), self.width).astype(np.float64)

    def corpus(self, sums: FloatArray) -> FloatArray:
        """Return the F-score of precision and recall, each averaged over the orders that both sides have n-grams of."""
        hypothesis, reference, match = (sums[..., part::3] for part in range(3))
        present = (hypothesis > 0) & (reference > 0)
        orders = np.maximum(present.sum(-1), 1)
        precision, recall = (
            np.divide(match, count, out=np.zeros(match.shape), where=present).sum(-1) / orders
            for count in (hypothesis, reference)
        )
        weighted = BETA**2 * precision + recall
        score: FloatArray = 100 * np.divide(
            (1 + BETA**2) * precision * recall, weighted, out=np.zeros(weighted.shape), where=weighted > 0
        )
        return score
