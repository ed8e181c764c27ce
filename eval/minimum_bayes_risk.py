"""Minimum Bayes risk: of several candidates, the translation that is most like all of them."""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from posnet_eval.metrics.base import FloatArray
from posnet_fairseq.shared.errors import UsageError, called_from_python, option
from posnet_fairseq.shared.failures import how_to_install
from posnet_fairseq.shared.records import installed_versions
from posnet_fairseq.text.plain import LINE

# (hypotheses of each line, references of each line) to (hypotheses, references) utilities of each line
Utility = Callable[[Sequence[Sequence[str]], Sequence[Sequence[str]]], Iterable[FloatArray]]

_LINES = 64  # whose utilities are computed at once


def _chrf(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> Iterable[FloatArray]:
    from fastchrf import pairwise_chrf

    return map(np.asarray, pairwise_chrf(hypotheses, references))


def _bleu(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> Iterator[FloatArray]:
    from sacrebleu.metrics import BLEU

    score = functools.cache(BLEU(effective_order=True).sentence_score)
    for line, against in zip(hypotheses, references, strict=True):
        yield np.array([[score(hypothesis, (known,)).score for known in against] for hypothesis in line])


UTILITIES: dict[str, Utility] = {"chrf": _chrf, "bleu": _bleu}


def check_utility(utility: str) -> None:
    """Raise a UsageError if there is no such utility, or its package is missing."""
    if utility not in UTILITIES:
        raise UsageError(f"{option('utility')} {utility}: give one of {', '.join(UTILITIES)}.")
    if utility == "chrf" and not installed_versions("fastchrf"):
        raise UsageError(
            f"The utility chrf needs the package fastchrf, which is not installed. {how_to_install('mbr')}"
        )


def rerank(candidates: Iterable[Sequence[str]], utility: str = "chrf") -> list[str]:
    """Return for each line the candidate of the greatest expected utility: minimum Bayes risk.

    The expected utility of a candidate is the mean of its utilities against all candidates of the line, itself among
    them: Eikema and Aziz (2022) Eq. 6, with the candidates as the sample. A candidate that is there several times
    counts as often. Of candidates with equal utilities, the first one is returned.

    Args:
        candidates: one or more candidates for each line, such as samples of a model, or of several models.
        utility: "chrf", sacreBLEU's chrF2 of sentences, computed by the package fastchrf, or "bleu", sacreBLEU's BLEU
            of sentences with effective order and its tokenizer 13a.

    Raises:
        UsageError: a line has no candidates, or the utility is unknown or cannot run.
    """
    with called_from_python():
        lines = [tuple(line) if isinstance(line, Sequence) and not isinstance(line, str) else () for line in candidates]
        for number, line in enumerate(lines):
            if not line or not all(isinstance(text, str) and LINE.fullmatch(text) for text in line):
                raise UsageError(f"candidates: item {number} is no list of one or more lines of text.")
        check_utility(utility)
        return list(best_candidates(lines, utility))


def best_candidates(candidates: Iterable[Sequence[str]], utility: str) -> Iterator[str]:
    """Yield what :func:`rerank` returns, line by line."""
    lines = iter(candidates)
    while part := list(islice(lines, _LINES)):
        counts = [Counter(line) for line in part]
        distinct = [list(count) for count in counts]
        for texts, count, utilities in zip(distinct, counts, UTILITIES[utility](distinct, distinct), strict=True):
            expected = utilities @ np.array(list(count.values())) / count.total()
            # Rounding does not decide between candidates that are equally good.
            yield texts[int(np.argmax(expected >= expected.max() - 1e-9))]
