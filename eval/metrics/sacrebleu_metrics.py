"""BLEU, chrF and TER: sacreBLEU counts, on several processes, and scores of many corpora at once are computed here."""

import functools
import logging
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric as Sacrebleu
from sacrebleu.utils import SACREBLEU_DIR

from posnet_eval.metrics.base import WITHOUT_SPACES, FloatArray, Metric, MetricOptions, Segment
from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.shared.processes import in_order
from posnet_fairseq.text.languages import bleu_tokenizer, code_of

logging.getLogger("sacrebleu").setLevel(logging.ERROR)  # the remarks on the data say what it warns of

BLOCK = 256  # segments that a process is given at once
BLEU_ORDER = 4
# Words of a line times those of its reference: the time of TER grows with more than the square of a line's length, and
# 1,000 words of few kinds take minutes.
_MOST = 250_000


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


class Bleu(SacrebleuMetric):
    """BLEU (Papineni et al., 2002).

    Statistics: lengths of hypothesis and closest reference, then correct and all n-grams for n = 1 to 4.
    """

    name, label = "bleu", "BLEU"
    width = 2 + 2 * BLEU_ORDER

    def __init__(self, options: MetricOptions) -> None:
        if options.tokenize not in (None, *BLEU.TOKENIZERS):
            raise UsageError(f"tokenizer {options.tokenize}: choose one of sacreBLEU's, {', '.join(BLEU.TOKENIZERS)}.")
        tokenizer = options.tokenize or bleu_tokenizer(options.language)[0]
        try:
            # force: no warning of text that looks tokenized, which is among the remarks
            sacrebleu = BLEU(lowercase=options.lowercase, force=True, tokenize=tokenizer)
        except (RuntimeError, ImportError, OSError, SystemExit) as error:  # the last where a download fails
            problem = (
                f"is not in {SACREBLEU_DIR}/models and cannot be fetched, or is damaged there ({error}). Copy that "
                f"folder from a machine with network, or choose another one with {option('tokenize')}."
            )
            if package := re.search(r"pip install (\S+)", str(error)):
                install = f"{shlex.quote(sys.executable)} -m pip install {shlex.quote(package[1])}"
                problem = f"is not installed. Run {install}"
            raise UsageError(f"BLEU's tokenizer {options.tokenize or f'for {options.language}'} {problem}") from error
        super().__init__(options, sacrebleu)

    def corpus(self, sums: FloatArray) -> FloatArray:
        """Return corpus BLEU, with exponential smoothing of orders without a match."""
        return _bleu(sums, effective=False)

    def by_segment(self, statistics: FloatArray) -> FloatArray:
        """Return sentence BLEU of the orders that the hypothesis has n-grams of, as sacreBLEU advises."""
        return _bleu(statistics, effective=True)


def _bleu(sums: FloatArray, effective: bool) -> FloatArray:
    length, reference = sums[..., 0], sums[..., 1]
    correct, total = sums[..., 2 : 2 + BLEU_ORDER], sums[..., 2 + BLEU_ORDER :]
    with np.errstate(divide="ignore", invalid="ignore"):
        penalty = np.where(length < reference, np.exp(1 - reference / length), 1.0)
        # An order without a match counts as half a match, the next one as a quarter ...
        unmatched = np.cumsum(correct == 0, axis=-1)
        precision = np.where(correct == 0, 0.5**unmatched, correct) / total
        logarithms = np.where(total > 0, np.log(precision), 0 if effective else -np.inf).sum(-1)
        orders = np.maximum((total > 0).sum(-1), 1) if effective else BLEU_ORDER
        score = 100 * penalty * np.exp(logarithms / orders)
    return np.where(correct.any(-1), score, 0.0)


class Chrf(SacrebleuMetric):
    """chrF (Popović, 2015). Statistics: n-grams of the hypothesis, of the reference and of both, for n = 1 to 6."""

    name, label = "chrf", "chrF"
    words = 0  # most words of an n-gram, whose statistics follow those of characters
    width = 3 * CHRF.CHAR_ORDER

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
        weighted = CHRF.BETA**2 * precision + recall
        combined = (1 + CHRF.BETA**2) * precision * recall
        return 100 * np.divide(combined, weighted, out=np.zeros(weighted.shape), where=weighted > 0)


class ChrfPlusPlus(Chrf):
    """chrF++ (Popović, 2017). Statistics: those of chrF, then those of words and of pairs of words, in that form."""

    name, label = "chrf++", "chrF++"
    words = 2
    width = 3 * (CHRF.CHAR_ORDER + words)


class Ter(SacrebleuMetric):
    """TER (Snover et al., 2006). Statistics: number of edits, mean length of the references in words."""

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
