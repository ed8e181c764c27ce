"""Results on a test set from the statistics of its segments: scores, intervals, differences, remarks."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise, starmap

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posnet_eval.inputs import hygiene
from posnet_eval.inputs.loading import Texts
from posnet_eval.inputs.plan import SEEDS, Plan
from posnet_eval.metrics.base import FloatArray, Metric
from posnet_eval.statistics import significance
from posnet_eval.statistics.results import Bucket, Difference, MetricInfo, Score, TestSetResult
from posnet_eval.statistics.significance import Runs, SeedVariance
from posnet_fairseq.shared.errors import counted, visible
from posnet_fairseq.text.languages import bleu_tokenizer

FEWEST_LINES = 30  # of a test set for which a bootstrap means something
UNLIKE = 3  # ratio of deviations over runs from which on it is said that they are pooled
EDGES = (0, 10, 20, 30, 40, 50)  # words at which buckets begin; the last one is open

# Scripts without spaces between words: Japanese and Chinese; Thai, Lao and Tibetan; Burmese; Khmer.
_UNSPACED = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
# A word, or a character of one of these.
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")

Part = tuple[str, NDArray[np.bool_]]  # of a text: label, (N,) what is in it
_DIGITS = re.compile(r"(\d{1,9})")

ByMetric = Mapping[tuple[str, str], FloatArray]  # statistics by names of metric and system


@dataclass
class MetricRun:
    """A metric on the texts of a test set."""

    metric: Metric
    details: dict[str, str]  # what its statistics depend on beside the text
    texts: Texts
    statistics: dict[str, FloatArray] = field(default_factory=dict)  # {system: (R, N, K) of R runs}, once known
    cut: NDArray[np.bool_] | None = None  # (N,) lines of which the metric did not read all, of any system


def summarize(plan: Plan, test: str, texts: Texts, runs: Sequence[MetricRun]) -> TestSetResult:
    """Return the results on a test set by metrics whose statistics are known; the test is "seeds" or a key of TESTS."""
    systems = list(texts.outputs)
    statistics = {(run.metric.name, name): rows for run in runs for name, rows in run.statistics.items()}
    resampled = significance.bootstrap_sums(statistics, plan.resamples, plan.seed)
    # Means over runs: a line has the same weight in systems with many runs and with one.
    pooled = {key: rows.mean(0, keepdims=True) for key, rows in statistics.items()}
    kept = significance.shuffled_sums(pooled, plan.trials, plan.seed) if test == "ar" else {}
    scores: dict[str, dict[str, Score]] = {name: {} for name in systems}
    unlike: dict[str, list[str]] = {}
    differences: dict[tuple[str, str], dict[str, Difference]] = {}
    for run in runs:
        metric = run.metric
        found = {
            name: Runs(metric.corpus(rows.sum(1)), metric.corpus(resampled[metric.name, name]))
            for name, rows in run.statistics.items()
        }
        variance = SeedVariance.of(found.values()) if test == SEEDS else None
        for name in systems:
            scores[name][metric.name] = score_of(found[name], variance)
            if variance and _varies_more(found[name], [found[other] for other in systems if other != name]):
                unlike.setdefault(name, []).append(metric.label)
        for b, a in combinations(systems, 2):
            some, others = texts.outputs[a], texts.outputs[b]
            differences.setdefault((a, b), {})[metric.name] = significance.compare(
                metric,
                found[a],
                found[b],
                same=sorted(some) == sorted(others) or len({*some, *others}) == 1,  # in whichever order of the runs
                randomized=_exchanged(metric, kept, pooled, a, b) if kept else None,
                contrast=variance.contrast(found[a], found[b]) if variance else None,
                is_shift=test == "shift",
            )
    metrics = {run.metric.name: run.metric for run in runs}
    return TestSetResult(
        **vars(texts),
        metrics=tuple(_info(run, plan) for run in runs),
        scores=scores,
        differences=differences,
        by_length=tuple(buckets(by_length(texts.sources or texts.first_references), metrics, statistics)),
        by_group=tuple(buckets(by_group(texts.groups), metrics, statistics)),
        remarks=(*_remarks(texts, plan), *_cut(runs), *starmap(_pooled, unlike.items())),
        segments={
            run.metric.name: {
                name: np.mean(list(map(run.metric.by_segment, rows)), axis=0) for name, rows in run.statistics.items()
            }
            for run in runs
        },
    )


def score_of(runs: Runs, variance: SeedVariance | None = None) -> Score:
    """Return a score with its interval: over sentences and seeds, or without their variance the bootstrap's."""
    found = variance.contrast(runs) if variance else None
    low, high = (found.low, found.high) if found else significance.interval(runs.means)
    deviation = float(np.std(runs.scores, ddof=1)) if len(runs.scores) > 1 else None
    return Score(runs.value, tuple(runs.scores.tolist()), deviation, low, high, half_width=0.5 * (high - low))


def _cut(runs: Iterable[MetricRun]) -> Iterator[hygiene.Remark]:
    """Yield a remark on each metric that did not read all of each line."""
    for run in runs:
        if run.cut is not None and (lines := (np.flatnonzero(run.cut) + 1).tolist()):
            longer = counted(len(lines), "line is longer", "lines are longer")
            reads = ["source"] * run.metric.needs_source + ["reference"] * run.metric.needs_reference
            what = f"{', '.join(reads)} or translation"
            text = f"{longer} than {run.metric.label} reads: the end of a {what} does not count"
            yield hygiene.Remark("", text, tuple(lines[: hygiene.SHOWN]))


def _varies_more(runs: Runs, others: Iterable[Runs]) -> bool:
    """Return whether a system's deviation over runs is more than :data:`UNLIKE` times that of the other systems."""
    own, rest = SeedVariance.of([runs]), SeedVariance.of(others)
    return bool(own.freedom and rest.freedom) and own.whole > UNLIKE**2 * rest.whole


def _pooled(system: str, labels: Sequence[str]) -> hygiene.Remark:
    return hygiene.Remark(
        system,
        f"σ of {', '.join(labels)} is more than {UNLIKE} times that of the other systems, with which the test pools "
        "it: of equally good systems, up to 29% instead of 5% are marked as different from this one",
    )


def _exchanged(metric: Metric, kept: ByMetric, pooled: ByMetric, a: str, b: str) -> FloatArray:
    """Return (1 + T,) differences of a from b, as observed and when the segments that were not kept are exchanged."""
    whole_a, whole_b = (pooled[metric.name, name].sum(1) for name in (a, b))
    kept_a, kept_b = (kept[metric.name, name][:, 0] for name in (a, b))
    first = np.concatenate([whole_a, kept_a + whole_b - kept_b])
    second = np.concatenate([whole_b, kept_b + whole_a - kept_a])
    return metric.corpus(first) - metric.corpus(second)


def in_ranges(lengths: ArrayLike, edges: Sequence[int], dash: str = "-") -> Iterator[Part]:
    """Yield ranges of lengths that begin at edges, the last one open, without empty ones."""
    place = np.digitize(np.asarray(lengths), edges[1:])
    labels = [*(f"{first}{dash}{last - 1}" for first, last in pairwise(edges)), f"{edges[-1]}+"]
    for number, label in enumerate(labels):
        if (chosen := place == number).any():
            yield label, chosen


def by_length(lines: Sequence[str]) -> Iterator[Part]:
    """Yield the parts of a text by sentence length, without empty ones."""
    return in_ranges([len(_WORD.findall(line)) for line in lines], EDGES)


def by_group(groups: Sequence[str]) -> Iterator[Part]:
    """Yield the parts of a text by the name of each line's group, 2 before 10."""
    names, of_lines = sorted(set(groups)), np.array(groups)
    names.sort(key=lambda name: [int(part) if part.isdecimal() else part for part in _DIGITS.split(name)])
    for name in names:
        yield name, of_lines == name


def buckets(parts: Iterable[Part], metrics: Mapping[str, Metric], statistics: ByMetric) -> Iterator[Bucket]:
    """Yield scores of parts of a text, means over runs, from (R, N, K) statistics."""
    for label, chosen in parts:
        scores: dict[str, dict[str, float]] = {}
        for (metric, system), rows in statistics.items():
            scores.setdefault(system, {})[metric] = float(metrics[metric].corpus(rows[:, chosen].sum(1)).mean())
        yield Bucket(label, int(chosen.sum()), scores)


def _remarks(texts: Texts, plan: Plan) -> Iterator[hygiene.Remark]:
    if "bleu" in plan.metrics and not plan.tokenize and (why := bleu_tokenizer(texts.languages[1])[1]):
        yield hygiene.Remark("", why)
    if texts.size < FEWEST_LINES:
        few = counted(texts.size, "line")
        yield hygiene.Remark("", f"only {few}: intervals and p-values mean little below {FEWEST_LINES}")
    yield from hygiene.given_remarks(texts.sources, texts.references)
    for name, runs in texts.outputs.items():
        if len(set(runs)) < len(runs):
            yield hygiene.Remark(name, "runs with equal outputs, which say nothing about the variation over seeds")
        for number, lines in enumerate(runs, 1):
            for remark in hygiene.remarks(name, lines, texts.first_references, texts.sources, plan.lowercase):
                yield replace(remark, text=f"run {number}: {remark.text}") if len(runs) > 1 else remark


def _info(run: MetricRun, plan: Plan) -> MetricInfo:
    trials = {"ar": plan.trials} if plan.test == "ar" else {}
    details, number = run.details, run.metric.options.references
    if run.metric.one_reference and number != 1:  # not in `details`, which are part of the cache's keys
        details = {"nrefs": "var" if number < 0 else str(number), "refs": plan.multi_reference, **details}
    # In one line: the name of a model's folder may have any characters.
    text = " ".join(visible(signature(details, bs=plan.resamples, **trials, seed=plan.seed)).split())
    return MetricInfo(run.metric.name, run.metric.label, run.metric.higher_is_better, text)


def signature(details: Mapping[str, str], **test: int) -> str:
    """Return the signature of a metric, in which the settings of the test stand where sacreBLEU has them."""
    others = dict(details)
    parts = {"nrefs": others.pop("nrefs", "1"), **test, **others}
    return "|".join(f"{name}:{value}" for name, value in parts.items())
