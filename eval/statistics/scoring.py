"""Scoring of systems on test sets: statistics of all segments, from the cache or computed."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from posnet_eval.inputs.loading import Texts, refuse
from posnet_eval.inputs.plan import MODELS, SEEDS, Lines, Plan
from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import Metric, MetricOptions, Segment
from posnet_eval.statistics.cache import SegmentCache, default_path, keys
from posnet_eval.statistics.results import Comparison
from posnet_eval.statistics.summary import MetricRun, summarize
from posnet_fairseq.shared.errors import UsageError, counted, option
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import installed_versions

SECONDS_BETWEEN_SAVES = 2.0


def compare(plan: Plan, all_texts: Sequence[Texts], report: ProgressReporter) -> Comparison:
    """Return scores of systems, by the texts of each test set of a plan, and the significance of their differences."""
    with contextlib.closing(_open_cache(plan, report)) as cache:
        runs, problems = [], []
        for name in plan.metrics:
            try:
                runs.append([_metric_run(name, plan, texts, cache) for texts in all_texts])
            except UsageError as error:
                problems.append(str(error))
        refuse(problems)
        for of_metric in runs:
            # Test sets of one target language share a metric, and with it a model and the segments they have in common.
            sharing: dict[str, list[MetricRun]] = {}
            for run in of_metric:
                sharing.setdefault(json.dumps(run.details), []).append(run)
            for some in sharing.values():
                _compute(some, cache, report, plan)
        if cache.full:
            report.say(f"the cache {cache.path} could not be written ({cache.full}): the next run computes this again.")
    several = any(len(outputs) > 1 for texts in all_texts for outputs in texts.outputs.values())
    test = plan.test or (SEEDS if several else "shift")
    results = []
    for texts, of_texts in zip(all_texts, zip(*runs, strict=True), strict=True):
        with report.stage(f"significance on {texts.name}"):
            results.append(summarize(plan, test, texts, of_texts))
    return Comparison(
        systems=tuple(plan.systems),
        labels=dict(plan.systems),
        baselines=plan.baselines,
        test_sets=tuple(results),
        test=test,
        resamples=plan.resamples,
        trials=plan.trials if test == "ar" else 0,
        seed=plan.seed,
        versions=installed_versions("posnet", "sacrebleu", "numpy"),
        columns=plan.columns,
        notes=plan.notes,
        pictures=plan.pictures,
    )


def _open_cache(plan: Plan, report: ProgressReporter) -> SegmentCache:
    """Open the cache of a plan, else the default one, which one can do without unless it is needed."""
    try:
        return SegmentCache(plan.cache or default_path())
    except UsageError as error:
        if plan.cache or plan.cached_only:
            raise
        report.say(f"no statistics are cached: {default_path()} cannot be used ({error.__cause__}).")
        return SegmentCache(None)


def _metric_run(name: str, plan: Plan, texts: Texts, cache: SegmentCache) -> MetricRun:
    given = {key: getattr(plan, key) for key in ("lowercase", "tokenize", *MODELS)}
    counts = set(map(len, texts.references_of_lines))
    options = MetricOptions(
        language=texts.languages[1],
        references=counts.pop() if len(counts) == 1 else -1,
        processes=plan.workers,
        device=plan.device,
        **{key: value for key, value in given.items() if value is not None},
    )
    metric = get_metric(name, options)
    if metric.needs_source and not texts.sources:
        raise UsageError(f"{metric.label} reads the source, of which {texts.name} has none. Give {option('source')}.")
    if metric.needs_reference and not texts.references:
        what = f"{metric.label} reads the reference, of which {texts.name} has none"
        raise UsageError(f"{what}. Give {option('reference')}, or {option('metrics')} comet-kiwi alone.")
    details = cache.recall(metric) if plan.cached_only and metric.requested_model else metric.details()
    if details is None:
        raise UsageError(
            f"{metric.label} with {metric.requested_model} is not in the cache {cache.path}. Run once without "
            f"{option('cached_only')}."
        )
    cache.remember(metric, details)
    return MetricRun(metric, details, texts)


def _compute(runs: Sequence[MetricRun], cache: SegmentCache, report: ProgressReporter, plan: Plan) -> None:
    """Fill in the statistics of metric runs that differ in their texts only, and cache new ones every few seconds."""
    metric = runs[0].metric
    rows_of: dict[Segment, int] = {}
    chosen = [
        {
            system: [
                [rows_of.setdefault(segment, len(rows_of)) for segment in _segments(lines, run.texts, metric)]
                for lines in outputs
            ]
            for system, outputs in run.texts.outputs.items()
        }
        for run in runs
    ]
    rows, cut = _rows(list(rows_of), runs[0], cache, report, plan)
    for run, of_run in zip(runs, chosen, strict=True):
        _fill_in(run, of_run, rows, cut, plan)


def _rows(
    segments: Sequence[Segment], run: MetricRun, cache: SegmentCache, report: ProgressReporter, plan: Plan
) -> tuple[Any, Any]:
    """Return the statistics of segments, those that the cache lacks computed, and which segments were cut."""
    metric = run.metric
    known_as = keys(metric, run.details, segments)
    rows, cut = cache.get(known_as, metric.width)
    unknown = np.flatnonzero(np.isnan(rows).any(1))
    if len(unknown) and plan.cached_only:
        raise UsageError(
            f"{len(unknown):,} of {counted(len(segments), 'different segment')} "
            f"{'has' if len(unknown) == 1 else 'have'} no {metric.label} in the cache "
            f"{cache.path}. Run without {option('cached_only')}."
        )
    if len(unknown):
        new: list[int] = []

        def save() -> None:
            cut[unknown[list(metric.cut)]] = True
            known = [row for row in new if np.isfinite(rows[row]).all()]
            cache.put([known_as[row] for row in known], rows[known], cut[known])
            new.clear()

        with report.stage(metric.label, "segments", len(unknown)) as bar, contextlib.ExitStack() as stack:
            stack.callback(save)
            saved = time.monotonic()
            for part, numbers in metric.statistics([segments[row] for row in unknown]):
                found = unknown[list(part)]
                rows[found] = numbers
                new += found.tolist()
                if time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
                    save()
                    saved = time.monotonic()
                bar.advance(len(part))
        metric.release()
    return rows, cut


def _fill_in(run: MetricRun, chosen: Mapping[str, Sequence[Sequence[int]]], rows: Any, cut: Any, plan: Plan) -> None:
    """Fill in the statistics of a metric run from the rows that are chosen for the outputs of each system."""
    metric = run.metric
    counts = np.array([len(some) if metric.one_reference else 1 for some in run.texts.references_of_lines])
    starts = np.cumsum(counts) - counts  # of the segments of each line
    for system, indices in chosen.items():
        of_segments = rows[np.array(indices)]
        if plan.multi_reference == "max":  # one_reference is for a MeanMetric with higher_is_better
            statistics = np.maximum.reduceat(of_segments, starts, axis=1)
        else:
            statistics = np.add.reduceat(of_segments, starts, axis=1) / counts[:, None]
        odd = np.argwhere(~np.isfinite(statistics).all(2))
        if len(odd):
            number, line = odd[0]
            which = f", run {number + 1}" if len(statistics) > 1 else ""
            raise UsageError(
                f"{metric.label} of {system}{which} on {run.texts.name} is not a number in line {line + 1:,} "
                f"(such lines: {len(odd):,}). The model seems to be broken; nothing was reported."
            )
        run.statistics[system] = statistics
    if chosen and cut.any():
        every = np.any([cut[indices] for outputs in chosen.values() for indices in outputs], axis=0)
        run.cut = np.logical_or.reduceat(every, starts)


def _segments(lines: Lines, texts: Texts, metric: Metric) -> Iterator[Segment]:
    """Yield the segments of all lines: one of each, or for a metric of one reference one for each reference."""
    sources = texts.sources if metric.needs_source else [""] * len(lines)
    for source, line, references in zip(sources, lines, texts.references_of_lines, strict=True):
        read = references if metric.needs_reference else ()
        for some in zip(read) if metric.one_reference else [read]:
            yield Segment(source, line, some)
