"""BLEU: n-gram precisions with a brevity penalty (Papineni et al., 2002), as sacreBLEU computes it."""

import re
import shlex
import sys
from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from sacrebleu.utils import SACREBLEU_DIR

from posnet_eval.metrics.base import FloatArray, MetricOptions, Segment
from posnet_eval.metrics.ngrams import as_characters, counts, lengths, matches
from posnet_eval.metrics.sacrebleu_metric import SacrebleuMetric
from posnet_fairseq.shared.errors import UsageError, option

ORDER = 4
_SPACE = "\x1f"  # white space to str.split, and an ordinary character to the tokenizer 13a


class Bleu(SacrebleuMetric):
    """BLEU. Statistics: lengths of hypothesis and closest reference, then correct and all n-grams for n = 1 to 4."""

    name, label = "bleu", "BLEU"
    width = 2 + 2 * ORDER

    def __init__(self, options: MetricOptions) -> None:
        if options.tokenize not in (None, *BLEU.TOKENIZERS):
            raise UsageError(f"tokenizer {options.tokenize}: choose one of sacreBLEU's, {', '.join(BLEU.TOKENIZERS)}.")
        try:
            # force: no warning of text that looks tokenized, which is among the remarks
            sacrebleu = BLEU(lowercase=options.lowercase, force=True, tokenize=options.tokenizer)
        except (RuntimeError, ImportError, OSError, SystemExit) as error:  # the last where a download fails
            problem = (
                f"is not in {SACREBLEU_DIR}/models and cannot be fetched, or is damaged there ({error}). Copy that "
                f"folder from a machine with network, or choose another one with {option('tokenize')}."
            )
            if package := re.search(r"pip install (\S+)", str(error)):
                install = f"{shlex.quote(sys.executable)} -m pip install {shlex.quote(package[1])}"
                problem = f"is not installed. Run {install}"
            tokenizer = options.tokenize or f"for {options.language}"
            raise UsageError(f"BLEU's tokenizer {tokenizer} {problem}") from error
        super().__init__(options, sacrebleu)

    def count(self, segments: Sequence[Segment]) -> FloatArray:
        """Return sacreBLEU's statistics; with one reference all segments are counted together, which is faster."""
        texts = as_characters(*self.prepared(segments))
        found = matches(list(zip(*texts, strict=True)), ORDER) if self.options.references == 1 else None
        if found is None:
            return super().count(segments)
        hypothesis, reference = map(lengths, texts)
        return np.column_stack([hypothesis, reference, found, counts(hypothesis, ORDER)]).astype(np.float64)

    def prepare(self, lines: Sequence[str]) -> list[str]:
        """Return lines as sacreBLEU prepares them; with the tokenizer 13a, all in one call.

        It puts spaces around many characters, also around spaces, which takes most of its time; other white space is
        left alone and separates words as well.
        """
        text = f"{_SPACE}\0{_SPACE}".join(line.rstrip() for line in lines)
        if not isinstance(self._sacrebleu.tokenizer, Tokenizer13a) or text.count("\0") != len(lines) - 1:
            return super().prepare(lines)
        prepared = self._sacrebleu._preprocess_segment(text.replace(" ", _SPACE))
        return [line.strip() for line in prepared.split("\0")]

    def corpus(self, sums: FloatArray) -> FloatArray:
        """Return corpus BLEU, with exponential smoothing of orders without a match."""
        return _bleu(sums, effective=False)

    def by_segment(self, statistics: FloatArray) -> FloatArray:
        """Return sentence BLEU of the orders that the hypothesis has n-grams of, as sacreBLEU advises."""
        return _bleu(statistics, effective=True)


def _bleu(sums: FloatArray, effective: bool) -> FloatArray:
    length, reference = sums[..., 0], sums[..., 1]
    correct, total = sums[..., 2 : 2 + ORDER], sums[..., 2 + ORDER :]
    with np.errstate(divide="ignore", invalid="ignore"):
        penalty = np.where(length < reference, np.exp(1 - reference / length), 1.0)
        # An order without a match counts as half a match, the next one as a quarter ...
        unmatched = np.cumsum(correct == 0, axis=-1)
        precision = np.where(correct == 0, 0.5**unmatched, correct) / total
        logarithms = np.where(total > 0, np.log(precision), 0 if effective else -np.inf).sum(-1)
        orders = np.maximum((total > 0).sum(-1), 1) if effective else ORDER
        score = 100 * penalty * np.exp(logarithms / orders)
    return np.where(correct.any(-1), score, 0.0)
