"""chrF, the F-score of character n-grams, and chrF++, with those of words (Popović, 2015, 2017), as in sacreBLEU."""

from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics import CHRF

from posnet_eval.metrics.base import FloatArray, MetricOptions, Segment
from posnet_eval.metrics.ngrams import as_characters, counts, lengths, matches
from posnet_eval.metrics.sacrebleu_metric import SacrebleuMetric

ORDER, BETA = CHRF.CHAR_ORDER, CHRF.BETA


class Chrf(SacrebleuMetric):
    """chrF. Statistics: n-grams of the hypothesis, of the reference and of both, for n = 1 to 6."""

    name, label = "chrf", "chrF"
    words = 0  # most words of an n-gram, whose statistics follow those of characters
    width = 3 * ORDER

    def __init__(self, options: MetricOptions) -> None:
        super().__init__(options, CHRF(lowercase=options.lowercase, word_order=self.words))

    def count(self, segments: Sequence[Segment]) -> FloatArray:
        """Return sacreBLEU's statistics; with one reference all segments are counted together, ten times as fast."""
        if self.options.references != 1:
            return super().count(segments)
        lines = self.prepared(segments)
        found = [_counted([["".join(line.split()) for line in side] for side in lines], ORDER)]
        if self.words:
            split = self._sacrebleu._remove_punctuation
            texts = as_characters(*([" ".join(split(line)) for line in side] for side in lines))
            found.append(_counted(texts, self.words))
        known = [each for each in found if each is not None]
        return np.concatenate(known, axis=1) if len(known) == len(found) else super().count(segments)

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


class ChrfPlusPlus(Chrf):
    """chrF++. Statistics: those of chrF, then those of words and of pairs of words, in the same form."""

    name, label = "chrf++", "chrF++"
    words = 2
    width = 3 * (ORDER + words)


def _counted(texts: Sequence[Sequence[str]], order: int) -> FloatArray | None:
    """Return (P, 3N) statistics of n-grams, n = 1 to N, of P hypotheses and references; None as :func:`matches`."""
    found = matches(list(zip(*texts, strict=True)), order)
    if found is None:
        return None
    hypothesis, reference = (counts(lengths(lines), order) for lines in texts)
    rows = np.stack([np.where(reference > 0, hypothesis, 0), reference, found], axis=2)
    return rows.reshape(len(rows), 3 * order).astype(np.float64)
