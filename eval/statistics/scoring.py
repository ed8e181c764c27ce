"""Scoring of systems on test sets: statistics of all segments, from the cache or computed."""

import importlib.metadata
import json
import time
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from posnet_eval.inputs.loading import Texts, refuse
from posnet_eval.inputs.plan import SEEDS, Lines, Plan
from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import FloatArray, Metric, MetricOptions, Segment
from posnet_eval.statistics.cache import SegmentCache, keys
from posnet_eval.statistics.results import Comparison
from posnet_eval.statistics.summary import MetricRun, summarise
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import ProgressReporter

SECONDS_BETWEEN_SAVES = 2.0
_PACKAGES = ("posnet", "sacrebleu", "numpy")


def compare(
    plan: Plan,
    all_texts: Sequence[Texts],
    cache: SegmentCache,
    report: ProgressReporter,
    processes: int = 1,
    cpu: bool = False,
    cached_only: bool = False,
) -> Comparison:
    """Return scores of systems and the significance of their differences.

    Args:
        plan: what to compare, and how.
        all_texts: texts of each test set of the plan.
        cache: cache of statistics, which is read and filled.
        report: reporter of progress.
        processes: number of processes that count n-grams and edits.
        cpu: do not use GPUs.
        cached_only: take all statistics from the cache and compute none.

    Raises:
        UsageError: a metric cannot run, or its scores are not numbers.
    """
    runs, problems = [], []
    for name in plan.metrics:
        try:
            runs.append([_metric_run(name, plan, texts, cache, processes, cpu, cached_only) for texts in all_texts])
        except UsageError as error:
            problems.append(str(error))
    refuse(problems)
    for of_metric in runs:
        # Test sets of one target language share a metric, and with it a model and the segments they have in common.
        sharing: dict[str, list[MetricRun]] = {}
        for run in of_metric:
            sharing.setdefault(json.dumps(run.details), []).append(run)
        for some in sharing.values():
            _compute(some, cache, report, cached_only)
    several = any(len(outputs) > 1 for texts in all_texts for outputs in texts.outputs.values())
    test = plan.test or (SEEDS if several else "bs")
    results = []
    for position, texts in enumerate(all_texts):
        with report.stage(f"test on {texts.name}"):
            results.append(summarise(plan, test, texts, [of_metric[position] for of_metric in runs]))
    return Comparison(
        systems=tuple(plan.systems),
        labels=dict(plan.systems),
        baselines=plan.baselines,
        test_sets=tuple(results),
        test=test,
        resamples=plan.resamples,
        trials=plan.trials if test == "ar" else 0,
        seed=plan.seed,
        versions={package: importlib.metadata.version(package) for package in _PACKAGES},
        columns=plan.columns,
        notes=plan.notes,
        pictures=plan.pictures,
    )


def _metric_run(
    name: str, plan: Plan, texts: Texts, cache: SegmentCache, processes: int, cpu: bool, cached_only: bool
) -> MetricRun:
    models = {key: getattr(plan, key) for key in ("bleurt_model", "comet_model", "comet_encoder")}
    options = MetricOptions(
        language=texts.languages[1],
        references=len(texts.references),
        lowercase=plan.lowercase,
        tokenize=plan.tokenize,
        processes=processes,
        cpu=cpu,
        **{key: value for key, value in models.items() if value is not None},
    )
    metric = get_metric(name, options)
    if metric.needs_source and not texts.sources:
        raise UsageError(f"{metric.label} reads the source, of which {texts.name} has none. Give --source.")
    if cached_only and metric.requested_model:
        details = cache.recall(metric)
        if details is None:
            raise UsageError(
                f"{metric.label} with {metric.requested_model} is not in the cache {cache.path}. Run once without "
                "--cached-only."
            )
    else:
        details = metric.details()
        cache.remember(metric, details)
    return MetricRun(metric, details, texts)


def _compute(runs: Sequence[MetricRun], cache: SegmentCache, report: ProgressReporter, cached_only: bool) -> None:
    """Fill in the statistics of metric runs that differ in their texts only."""
    metric, details = runs[0].metric, runs[0].details
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
    segments = list(rows_of)
    known_as = keys(metric, details, segments)
    rows = cache.get(known_as, metric.width)
    unknown = np.flatnonzero(np.isnan(rows).any(1)).tolist()
    if unknown and cached_only:
        raise UsageError(
            f"{len(unknown):,} of {len(segments):,} different segments have no {metric.label} in the cache "
            f"{cache.path}. Run without --cached-only."
        )
    if unknown:
        with (
            report.stage(metric.label, "segments", len(unknown)) as bar,
            _CacheWriter(cache, known_as, rows) as writer,
        ):
            for part, numbers in metric.statistics([segments[row] for row in unknown]):
                found = [unknown[position] for position in part]
                rows[found] = numbers
                writer.add(found)
                bar.advance(len(part))
        metric.release()
    for run, of_run in zip(runs, chosen, strict=True):
        run.statistics = {system: rows[np.array(indices)] for system, indices in of_run.items()}
        for system in of_run:
            _refuse_nan(run, system)


class _CacheWriter:
    """Writes new rows to the cache every few seconds, and the last ones also when the run is interrupted.

    Args:
        cache: cache to write to.
        known_as: keys of all rows.
        rows: statistics, which are filled in meanwhile.
    """

    def __init__(self, cache: SegmentCache, known_as: Sequence[bytes], rows: FloatArray) -> None:
        self._cache, self._known_as, self._rows = cache, known_as, rows
        self._new: list[int] = []
        self._since = time.monotonic()

    def __enter__(self) -> "_CacheWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self._write()

    def add(self, indices: Iterable[int]) -> None:
        """Add rows that have been filled in."""
        self._new += [index for index in indices if np.isfinite(self._rows[index]).all()]
        if time.monotonic() - self._since > SECONDS_BETWEEN_SAVES:
            self._write()

    def _write(self) -> None:
        self._cache.put([self._known_as[index] for index in self._new], self._rows[self._new])
        self._new, self._since = [], time.monotonic()


def _segments(lines: Lines, texts: Texts, metric: Metric) -> Iterator[Segment]:
    sources = texts.sources if metric.needs_source else [""] * len(lines)
    return map(Segment, sources, lines, zip(*texts.references, strict=True))


def _refuse_nan(run: MetricRun, system: str) -> None:
    odd = np.argwhere(~np.isfinite(run.statistics[system]).all(2))
    if len(odd):
        number, line = odd[0]
        which = f", run {number + 1}" if len(run.statistics[system]) > 1 else ""
        raise UsageError(
            f"{run.metric.label} of {system}{which} on {run.texts.name} is not a number in {len(odd):,} lines, the "
            f"first is line {line + 1:,}. The model seems to be broken; nothing was reported."
        )
