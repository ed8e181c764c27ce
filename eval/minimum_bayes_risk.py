"""Choice among candidate translations: minimum Bayes risk (the one that is most like all of them), or an estimate."""

import functools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import FloatArray, Metric, MetricOptions, Segment
from posnet_fairseq.shared.errors import UsageError, called_from_python, option, refuse_unknown_arguments
from posnet_fairseq.shared.failures import how_to_install
from posnet_fairseq.shared.records import installed_versions
from posnet_fairseq.text.plain import LINE

Counts = Sequence[Counter[str]]  # the candidates of each line, and how often they are there
# (candidates, sources, metric) to the expected utilities of each line's distinct candidates
Utility = Callable[[Counts, Sequence[str], Any], Iterable[FloatArray]]

AT_ONCE = 16  # lines whose utilities are computed together


def _check_finite(line: Iterable[str], scores: FloatArray) -> None:
    """Refuse a score of a line's candidates that is no number."""
    for text, score in zip(line, scores, strict=True):
        if not np.isfinite(score):
            raise UsageError(f"the score of {text!r:.60} is not a number. The model seems to be broken.")


def _means(lines: Counts, utilities: Iterable[FloatArray]) -> Iterator[FloatArray]:
    """Yield means of each line's (K, K) utilities over the second axis, weighted by how often each candidate occurs."""
    for line, of_line in zip(lines, utilities, strict=True):
        _check_finite(line, of_line.diagonal())  # one whose scores are NaN makes all means NaN
        yield of_line @ np.array(list(line.values())) / line.total()


def _chrf(lines: Counts, *_: object) -> Iterable[FloatArray]:
    from fastchrf import pairwise_chrf

    texts = list(map(list, lines))
    return _means(lines, map(np.asarray, pairwise_chrf(texts, texts)))


def _aggregated_chrf(lines: Counts, *_: object) -> Iterable[FloatArray]:
    from fastchrf import aggregate_chrf

    return map(np.asarray, aggregate_chrf(list(map(list, lines)), [list(line.elements()) for line in lines]))


def _bleu(lines: Counts, *_: object) -> Iterable[FloatArray]:
    from sacrebleu.metrics import BLEU

    score = functools.cache(BLEU(effective_order=True).sentence_score)
    return _means(lines, (np.array([[score(one, (known,)).score for known in line] for one in line]) for line in lines))


def _comet(lines: Counts, sources: Sequence[str], metric: Any) -> Iterable[FloatArray]:
    return _means(lines, metric.utilities(sources, list(map(list, lines))))


def _estimate(lines: Counts, sources: Sequence[str], metric: Any) -> Iterable[FloatArray]:
    segments = [Segment(source, text, ()) for source, line in zip(sources, lines, strict=True) for text in line]
    sizes, scores = list(map(len, lines)), np.empty(len(segments))
    for positions, rows in metric.statistics(segments):
        scores[positions] = rows[:, 0]
    metric.cut = set(np.repeat(np.arange(len(lines)), sizes)[list(metric.cut)])
    return np.split(scores, np.cumsum(sizes)[:-1])


UTILITIES: dict[str, Utility] = {
    "chrf": _chrf,
    "chrf-aggregated": _aggregated_chrf,
    "bleu": _bleu,
    "comet": _comet,
    "comet-kiwi": _estimate,
}


def metric_of(utility: str, has_sources: bool, device: str | None, models: Mapping[str, str]) -> Metric | None:
    """Return the metric that has the model of a utility, if one has; `models` are the given ones, by option.

    Raises:
        UsageError: there is no such utility, it does not read a model, or its sources, package or model are missing.
    """
    if utility not in [*UTILITIES]:  # which may be given as a list, without a hash
        raise UsageError(f"{option('utility')} {utility}: give one of {', '.join(UTILITIES)}.")
    if "chrf" in utility and not installed_versions("fastchrf"):
        raise UsageError(
            f"The utility {utility} needs the package fastchrf, which is not installed. {how_to_install('mbr')}"
        )
    metric = get_metric(utility, MetricOptions(device=device, **models)) if "comet" in utility else None
    read = getattr(metric, "named_by", ())
    for name in models:
        if name not in read:
            which = " and ".join(map(option, read)) or "no model"
            raise UsageError(f"{option('utility')} {utility} reads {which}. Leave {option(name)} out.")
    if metric is None:
        return None
    if not has_sources:
        raise UsageError(f"{option('utility')} {utility}: {metric.label} reads the source. Give {option('source')}.")
    metric.fetch()
    return metric


@refuse_unknown_arguments()
def rerank(
    candidates: Iterable[Sequence[str]],
    utility: str = "chrf",
    sources: Iterable[str] | None = None,
    *,
    comet_model: str | os.PathLike[str] | None = None,
    comet_kiwi_model: str | os.PathLike[str] | None = None,
    comet_encoder: str | os.PathLike[str] | None = None,
    device: str | None = None,
) -> list[str]:
    """Return for each line the candidate of the greatest expected utility: minimum Bayes risk.

    The expected utility of a candidate is the mean of its utilities against all candidates of the line, itself among
    them: Eikema and Aziz (2022) Eq. 6, with the candidates as the sample. A candidate that is there several times
    counts as often. Of candidates with equal utilities, the first one is returned.

    Args:
        candidates: one or more candidates for each line, such as samples of a model, or of several models.
        utility: of a sentence,

            * "chrf": sacreBLEU's chrF2, computed by the package fastchrf;
            * "chrf-aggregated": chrF2 against the mean of the n-grams of all candidates, in time linear in their
              number: Vamvas and Sennrich (2024);
            * "bleu": sacreBLEU's BLEU with effective order and its tokenizer 13a;
            * "comet": COMET, which encodes each candidate once;
            * "comet-kiwi": no minimum Bayes risk, but the candidate of the highest COMETKiwi, which compares it with
              the source alone.

        sources: source text of each line, which COMET and COMETKiwi read.
        comet_model, comet_kiwi_model, comet_encoder: as of :func:`posnet.score`.
        device: of these models: "cpu", "cuda" for all GPUs, or one of them, as "cuda:1"; default: all GPUs, or the CPU
            if there are none.

    Raises:
        UsageError: a line has no candidates, the numbers of lines differ, or the utility is unknown or cannot run.
    """
    with called_from_python(source="sources"):
        if not isinstance(candidates, Iterable):
            raise UsageError(f"candidates {candidates!r:.60}: give a list of candidates for each line.")
        lines = [tuple(line) if isinstance(line, Sequence) and not isinstance(line, str) else () for line in candidates]
        for number, line in enumerate(lines):
            if not line or not all(map(_is_line, line)):
                raise UsageError(f"candidates: item {number} is no list of one or more lines of text.")
        known = list(sources) if isinstance(sources, Iterable) else [""] * len(lines)
        is_text = isinstance(sources, Iterable | None) and not isinstance(sources, str)
        if not is_text or len(known) != len(lines) or not all(map(_is_line, known)):
            raise UsageError(f"sources: give a line of text for each of the {len(lines):,} lists of candidates.")
        models = {"comet_model": comet_model, "comet_kiwi_model": comet_kiwi_model, "comet_encoder": comet_encoder}
        given = dict[str, str]()
        for name, value in ({"device": device} | models).items():
            if not isinstance(value, str | os.PathLike | None):
                raise UsageError(f"{name} {value!r:.60}: give a value of type str.")
            given |= {} if value is None else {name: os.fspath(value)}
        metric = metric_of(utility, sources is not None, given.pop("device", None), given)
        parts = range(0, len(lines), AT_ONCE)
        rows = [(lines[start : start + AT_ONCE], known[start : start + AT_ONCE]) for start in parts]
        return [text for part, of_part in rows for text in best_candidates(part, of_part, utility, metric)]


def _is_line(text: object) -> bool:
    return isinstance(text, str) and LINE.fullmatch(text) is not None


def best_candidates(
    candidates: Sequence[Sequence[str]], sources: Sequence[str], utility: str, metric: Metric | None
) -> Iterator[str]:
    """Yield what :func:`rerank` returns for lines, at once; `metric` is that of :func:`metric_of`."""
    counts = list(map(Counter, candidates))
    for line, expected in zip(counts, UTILITIES[utility](counts, sources, metric), strict=True):
        _check_finite(line, expected)
        # Rounding does not decide between candidates that are equally good.
        yield list(line)[int(np.argmax(expected >= expected.max() - 1e-9))]
