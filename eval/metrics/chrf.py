"""chrF, the F-score of character n-grams, and chrF++, with those of words (Popović, 2015, 2017), as in sacreBLEU."""

import numpy as np
from sacrebleu.metrics import CHRF

from posnet_eval.metrics.base import FloatArray, MetricOptions
from posnet_eval.metrics.sacrebleu_metric import SacrebleuMetric

ORDER, BETA = CHRF.CHAR_ORDER, CHRF.BETA


class Chrf(SacrebleuMetric):
    """chrF. Statistics: n-grams of the hypothesis, of the reference and of both, for n = 1 to 6."""

    name, label = "chrf", "chrF"
    words = 0  # most words of an n-gram, whose statistics follow those of characters
    width = 3 * ORDER

    def __init__(self, options: MetricOptions) -> None:
        super().__init__(options, CHRF(lowercase=options.lowercase, word_order=self.words))

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
        combined = (1 + BETA**2) * precision * recall
        return 100 * np.divide(combined, weighted, out=np.zeros(weighted.shape), where=weighted > 0)


class ChrfPlusPlus(Chrf):
    """chrF++. Statistics: those of chrF, then those of words and of pairs of words, in the same form."""

    name, label = "chrf++", "chrF++"
    words = 2
    width = 3 * (ORDER + words)
