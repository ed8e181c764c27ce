"""Results on a test set from the statistics of its segments: scores, intervals, differences, remarks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from posnet_eval.inputs import hygiene
from posnet_eval.inputs.loading import Texts
from posnet_eval.inputs.plan import Lines, Plan
from posnet_eval.metrics.base import FloatArray, Metric
from posnet_eval.statistics import significance
from posnet_eval.statistics.buckets import by_length
from posnet_eval.statistics.results import Difference, MetricInfo, Score, TestSetResult, deviation
from posnet_fairseq.shared.errors import visible


@dataclass
class MetricRun:
    """A metric on a test set.

    Attributes:
        metric: the metric.
        details: what its statistics depend on beside the text.
        texts: lines of the test set.
        statistics: {system: (R, N, K) of R runs}, once they are known.
    """

    metric: Metric
    details: dict[str, str]
    texts: Texts
    statistics: dict[str, FloatArray] = field(default_factory=dict)


def summarise(plan: Plan, texts: Texts, runs: Sequence[MetricRun]) -> TestSetResult:
    """Return the results on a test set.

    Args:
        plan: tests to make.
        texts: lines of the test set.
        runs: metrics with their statistics.
    """
    systems = list(texts.outputs)
    # Means over runs: a line has the same weight in systems with many runs and with one.
    pooled = {run.metric.name: {name: rows.mean(0) for name, rows in run.statistics.items()} for run in runs}
    none = np.empty((len(texts.references[0]), 0))  # where all systems are missing
    columns = np.concatenate([none, *(pooled[run.metric.name][name] for run in runs for name in systems)], axis=1)
    resampled = _by_system(significance.bootstrap_sums(columns, plan.resamples, plan.seed), runs, systems)
    kept: dict[str, dict[str, FloatArray]] = {}
    if plan.test == "ar":
        kept = _by_system(significance.shuffled_sums(columns, plan.trials, plan.seed), runs, systems)
    scores: dict[str, dict[str, Score]] = {name: {} for name in systems}
    differences: dict[tuple[str, str], dict[str, Difference]] = {}
    for run in runs:
        metric = run.metric
        samples = {name: metric.corpus(sums) for name, sums in resampled[metric.name].items()}
        totals = {name: rows.sum(0) for name, rows in pooled[metric.name].items()}
        for name in systems:
            scores[name][metric.name] = _score(metric, run.statistics[name], samples[name])
        for b, a in combinations(systems, 2):
            differences.setdefault((a, b), {})[metric.name] = significance.compare(
                metric,
                (metric.corpus(totals[a]), metric.corpus(totals[b])),
                (samples[a], samples[b]),
                same=_equal(texts.outputs[a], texts.outputs[b]),
                randomised=_exchanged(metric, kept[metric.name], totals, a, b) if kept else None,
            )
    return TestSetResult(
        name=texts.name,
        languages=texts.languages,
        metrics=tuple(_info(run, plan) for run in runs),
        scores=scores,
        differences=differences,
        missing=texts.missing,
        by_length=tuple(by_length(texts.sources or texts.references[0], [run.metric for run in runs], pooled)),
        remarks=tuple(_remarks(texts, plan.lowercase)),
        sources=texts.sources,
        references=texts.references,
        outputs=texts.outputs,
        segments={run.metric.name: _segment_scores(run) for run in runs},
    )


def _by_system(sums: FloatArray, runs: Sequence[MetricRun], systems: Sequence[str]) -> dict[str, dict[str, FloatArray]]:
    """Return {metric: {system: its columns}} of sums of the columns of all metrics and systems."""
    found: dict[str, dict[str, FloatArray]] = {run.metric.name: {} for run in runs}
    start = 0
    for run in runs:
        for name in systems:
            found[run.metric.name][name] = sums[:, start : start + run.metric.width]
            start += run.metric.width
    return found


def _score(metric: Metric, statistics: FloatArray, samples: FloatArray) -> Score:
    """Return the score of (R, N, K) statistics with the interval of (B,) resampled scores."""
    values = tuple(float(metric.corpus(run.sum(0))) for run in statistics)
    low, high = significance.interval(samples)
    return Score(float(np.mean(values)), values, deviation(values), low, high, half_width=0.5 * (high - low))


def _segment_scores(run: MetricRun) -> dict[str, FloatArray]:
    """Return {system: (N,) scores, means over runs}."""
    return {
        name: np.mean([run.metric.by_segment(rows) for rows in statistics], axis=0)
        for name, statistics in run.statistics.items()
    }


def _equal(some: Sequence[Lines], others: Sequence[Lines]) -> bool:
    """Return whether two systems have equal outputs, in whichever order of the runs."""
    return sorted(some) == sorted(others) or len({*some, *others}) == 1


def _exchanged(
    metric: Metric, kept: Mapping[str, FloatArray], totals: Mapping[str, FloatArray], a: str, b: str
) -> tuple[FloatArray, FloatArray]:
    """Return (T,) scores of a and of b after an exchange of the segments that were not kept."""
    return (
        metric.corpus(kept[a] + totals[b] - kept[b]),
        metric.corpus(kept[b] + totals[a] - kept[a]),
    )


def _remarks(texts: Texts, lowercase: bool) -> Iterator[hygiene.Remark]:
    yield from hygiene.given_remarks(texts.sources, texts.references)
    for name, runs in texts.outputs.items():
        for number, lines in enumerate(runs, 1):
            for remark in hygiene.remarks(name, lines, texts.references[0], texts.sources, lowercase):
                yield replace(remark, text=f"run {number}: {remark.text}") if len(runs) > 1 else remark


def _info(run: MetricRun, plan: Plan) -> MetricInfo:
    """Return the metric with its signature, in which the test stands where sacreBLEU has it."""
    details = dict(run.details)
    signature: dict[str, object] = {"nrefs": details.pop("nrefs", "1"), "bs": plan.resamples}
    if plan.test == "ar":
        signature["ar"] = plan.trials
    signature |= {"seed": plan.seed} | details
    metric = run.metric
    # In one line: the name of a model's folder may have any characters.
    text = " ".join(visible("|".join(f"{key}:{value}" for key, value in signature.items())).split())
    return MetricInfo(metric.name, metric.label, metric.higher_is_better, text)
