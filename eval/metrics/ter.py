"""TER: edits and shifts for each reference word (Snover et al., 2006), as sacreBLEU computes it."""

import numpy as np
from sacrebleu.metrics import TER

from posnet_eval.metrics.base import FloatArray, MetricOptions
from posnet_eval.metrics.sacrebleu_metric import SacrebleuMetric

WITHOUT_SPACES = ("zh", "ja")


class Ter(SacrebleuMetric):
    """TER. Statistics: number of edits, mean length of the references in words."""

    name, label = "ter", "TER"
    higher_is_better = False
    width = 2

    def __init__(self, options: MetricOptions) -> None:
        characters = options.code in WITHOUT_SPACES
        super().__init__(options, TER(normalized=characters, asian_support=characters))

    def corpus(self, sums: FloatArray) -> FloatArray:
        """Return edits in percent of reference words."""
        edits, length = sums[..., 0], sums[..., 1]
        score: FloatArray = 100 * np.divide(edits, length, out=np.where(edits > 0, 1.0, 0.0), where=length > 0)
        return score
