"""BLEU: n-gram precisions with a brevity penalty (Papineni et al., 2002), as sacreBLEU computes it."""

import re
import shlex
import sys

import numpy as np
from sacrebleu.metrics import BLEU
from sacrebleu.utils import SACREBLEU_DIR

from posnet_eval.metrics.base import FloatArray, MetricOptions
from posnet_eval.metrics.sacrebleu_metric import SacrebleuMetric
from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.text.languages import bleu_tokenizer

ORDER = 4


class Bleu(SacrebleuMetric):
    """BLEU. Statistics: lengths of hypothesis and closest reference, then correct and all n-grams for n = 1 to 4."""

    name, label = "bleu", "BLEU"
    width = 2 + 2 * ORDER

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
