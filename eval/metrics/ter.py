"""TER: edits and shifts for each reference word (Snover et al., 2006), as sacreBLEU computes it."""

from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics import TER

from posnet_eval.metrics.base import WITHOUT_SPACES, FloatArray, MetricOptions, Segment
from posnet_eval.metrics.sacrebleu_metric import SacrebleuMetric
from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.text.languages import code_of

# Words of a line times those of its reference: the time grows with more than the square of a line's length, and 1,000
# words of few kinds take minutes.
_MOST = 250_000


class Ter(SacrebleuMetric):
    """TER. Statistics: number of edits, mean length of the references in words."""

    name, label = "ter", "TER"
    higher_is_better = False
    width = 2

    def __init__(self, options: MetricOptions) -> None:
        characters = code_of(options.language) in WITHOUT_SPACES
        super().__init__(options, TER(normalized=characters, asian_support=characters))

    def count(self, segments: Sequence[Segment]) -> FloatArray:
        """Return statistics, see :meth:`SacrebleuMetric.count`."""
        prepare = self._sacrebleu._preprocess_segment
        for segment in segments:
            words, *others = (len(prepare(line).split()) for line in [segment.hypothesis, *segment.references])
            if words * max(others) > _MOST:
                raise UsageError(
                    f"ter: a line of {words:,} words ({segment.hypothesis!r:.40}) has a reference of {max(others):,}, "
                    f"and their product may be at most {_MOST:,}: sacreBLEU would take minutes. Score sentences, or "
                    f"leave ter out of {option('metrics')}."
                )
        return super().count(segments)

    def corpus(self, sums: FloatArray) -> FloatArray:
        """Return edits in percent of reference words."""
        edits, length = sums[..., 0], sums[..., 1]
        return 100 * np.divide(edits, length, out=np.where(edits > 0, 1.0, 0.0), where=length > 0)
