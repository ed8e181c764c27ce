"""From texts to the result: statistics of all segments, scores, differences."""

import importlib.metadata
import json
import re
import time
from dataclasses import dataclass, replace

import numpy as np

from posnet_eval.inputs import hygiene
from posnet_eval.inputs.loading import refuse
from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import Metric, MetricOptions, Segment
from posnet_eval.statistics import significance
from posnet_eval.statistics.buckets import by_length
from posnet_eval.statistics.cache import keys
from posnet_eval.statistics.results import Comparison, MetricInfo, Score, TestSetResult, deviation
from posnet_fairseq.shared.errors import UsageError, visible

SECONDS_BETWEEN_SAVES = 2.0
_PACKAGES = ("posnet", "sacrebleu", "numpy")


@dataclass
class _Job:
    """A metric on a test set.

    Attributes:
        details: all that its numbers depend on.
        statistics: {system: (R, N, K), of each run}, once they are known.
    """

    metric: Metric
    details: dict
    texts: object
    statistics: dict = None


def score(plan, all_texts, cache, report, processes=1, cpu=False, cached_only=False):
    """Score systems, and tell which differences are more than chance.

    Args:
        plan: :class:`posnet_eval.inputs.plan.Plan`.
        all_texts: list of :class:`posnet_eval.inputs.loading.Texts`, one for each test set.
        cache: :class:`posnet_eval.statistics.cache.SegmentCache`.
        report: :class:`posnet_fairseq.shared.progress.Report`.
        processes: that count n-grams and edits.
        cpu: no GPU even if there is one.
        cached_only: compute nothing, take all from the cache.

    Returns:
        :class:`posnet_eval.statistics.results.Comparison`.

    Raises:
        UsageError: a metric cannot run, or its scores are not numbers.
    """
    jobs, problems = [], []
    for name in plan.metrics:
        try:
            jobs.append([_job(name, plan, texts, cache, processes, cpu, cached_only) for texts in all_texts])
        except UsageError as error:
            problems.append(str(error))
    refuse(problems)
    for of_metric in jobs:
        # Test sets of one language share a metric, and with it a model and the segments that they have in common.
        alike = {}
        for job in of_metric:
            alike.setdefault(json.dumps(job.details), []).append(job)
        for some in alike.values():
            _compute(some, cache, report, cached_only)
    results = []
    for place, texts in enumerate(all_texts):
        with report.stage(f"test on {texts.name}"):
            results.append(_result(plan, texts, [of_metric[place] for of_metric in jobs]))
    return Comparison(
        systems=tuple(plan.systems),
        labels=dict(plan.systems),
        baselines=plan.baselines,
        test_sets=tuple(results),
        test=plan.test,
        resamples=plan.resamples,
        trials=plan.trials if plan.test == "ar" else 0,
        seed=plan.seed,
        versions={package: importlib.metadata.version(package) for package in _PACKAGES},
        columns=plan.columns,
    )


def _job(name, plan, texts, cache, processes, cpu, cached_only):
    models = {key: getattr(plan, key) for key in ("bleurt_model", "comet_model", "comet_encoder")}
    options = MetricOptions(
        language=re.split("[-_]", texts.languages[1])[0].lower(),
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
    if cached_only and metric.given:
        details = cache.recall(metric)
        if details is None:
            raise UsageError(
                f"{metric.label} with {metric.given} is not in the cache {cache.path}. Run once without --cached-only."
            )
    else:
        details = metric.details()
        cache.remember(metric, details)
    return _Job(metric, details, texts)


def _compute(jobs, cache, report, cached_only):
    """Fill in the statistics of jobs that differ in nothing but the text."""
    metric, details = jobs[0].metric, jobs[0].details
    places = {}
    chosen = [
        {
            system: [
                [places.setdefault(one, len(places)) for one in _segments(lines, job.texts, metric)] for lines in runs
            ]
            for system, runs in job.texts.outputs.items()
        }
        for job in jobs
    ]
    segments = list(places)
    known_as = keys(metric, details, segments)
    rows = cache.get(known_as, metric.width)
    unknown = np.flatnonzero(np.isnan(rows).any(1)).tolist()
    if unknown and cached_only:
        raise UsageError(
            f"{len(unknown):,} of {len(segments):,} different segments have no {metric.label} in the cache "
            f"{cache.path}. Run without --cached-only."
        )
    if unknown:
        with report.stage(metric.label, "segments", len(unknown)) as bar, _Keeping(cache, known_as, rows) as keeping:
            for part, numbers in metric.statistics([segments[place] for place in unknown]):
                found = [unknown[place] for place in part]
                rows[found] = numbers
                keeping.add(found)
                bar.advance(len(part))
        metric.release()
    for job, of_job in zip(jobs, chosen, strict=True):
        job.statistics = {system: rows[np.array(of_runs)] for system, of_runs in of_job.items()}
        for system in of_job:
            _refuse_nan(job, system)


class _Keeping:
    """Puts rows into the cache as they come, many at once; the last ones also when the run is interrupted."""

    def __init__(self, cache, known_as, rows):
        self._cache, self._known_as, self._rows = cache, known_as, rows
        self._new, self._since = [], time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._put()

    def add(self, places):
        """Rows that have become known."""
        self._new += [place for place in places if np.isfinite(self._rows[place]).all()]
        if time.monotonic() - self._since > SECONDS_BETWEEN_SAVES:
            self._put()

    def _put(self):
        self._cache.put([self._known_as[place] for place in self._new], self._rows[self._new])
        self._new, self._since = [], time.monotonic()


def _segments(lines, texts, metric):
    sources = texts.sources if metric.needs_source else [""] * len(lines)
    return map(Segment, sources, lines, zip(*texts.references, strict=True))


def _refuse_nan(job, system):
    odd = np.argwhere(~np.isfinite(job.statistics[system]).all(2))
    if len(odd):
        run, line = odd[0]
        which = f", run {run + 1}" if len(job.statistics[system]) > 1 else ""
        raise UsageError(
            f"{job.metric.label} of {system}{which} on {job.texts.name} is not a number in {len(odd):,} lines, the "
            f"first is line {line + 1:,}. The model seems to be broken; nothing was reported."
        )


def _result(plan, texts, jobs):
    systems = list(texts.outputs)
    # Means over runs: a line weighs the same in systems of many runs and of one.
    pooled = {job.metric.name: {name: runs.mean(0) for name, runs in job.statistics.items()} for job in jobs}
    none = np.empty((len(texts.references[0]), 0))  # where all systems are missing
    columns = np.concatenate([none, *(pooled[job.metric.name][name] for job in jobs for name in systems)], axis=1)
    resampled = _by_system(significance.bootstrap_sums(columns, plan.resamples, plan.seed), jobs, systems)
    kept = None
    if plan.test == "ar":
        kept = _by_system(significance.shuffled_sums(columns, plan.trials, plan.seed), jobs, systems)
    scores, differences, segments = {name: {} for name in systems}, {}, {}
    for job in jobs:
        metric, sums = job.metric, resampled[job.metric.name]
        samples = {name: metric.corpus(sums[name]) for name in systems}
        totals = {name: rows.sum(0) for name, rows in pooled[metric.name].items()}
        for name in systems:
            runs = tuple(float(metric.corpus(run.sum(0))) for run in job.statistics[name])
            low, high = significance.interval(samples[name])
            scores[name][metric.name] = Score(
                float(np.mean(runs)), runs, deviation(runs), low, high, half_width=0.5 * (high - low)
            )
        segments[metric.name] = {
            name: np.mean([metric.by_segment(run) for run in runs], axis=0) for name, runs in job.statistics.items()
        }
        for place, b in enumerate(systems):
            for a in systems[place + 1 :]:
                randomised = kept and _exchanged(metric, kept[metric.name], totals, a, b)
                differences.setdefault((a, b), {})[metric.name] = significance.compare(
                    metric,
                    (metric.corpus(totals[a]), metric.corpus(totals[b])),
                    (samples[a], samples[b]),
                    same=_same(texts.outputs[a], texts.outputs[b]),
                    randomised=randomised,
                )
    return TestSetResult(
        name=texts.name,
        languages=texts.languages,
        metrics=tuple(_info(job, plan) for job in jobs),
        scores=scores,
        differences=differences,
        missing=texts.missing,
        by_length=tuple(by_length(texts.sources or texts.references[0], [job.metric for job in jobs], pooled)),
        remarks=tuple(_remarks(texts)),
        sources=texts.sources,
        references=texts.references,
        outputs=texts.outputs,
        segments=segments,
    )


def _same(some, others):
    return sorted(some) == sorted(others) or len({*some, *others}) == 1


def _remarks(texts):
    for name, runs in texts.outputs.items():
        for number, lines in enumerate(runs, 1):
            for remark in hygiene.remarks(name, lines, texts.references[0], texts.sources):
                yield replace(remark, text=f"run {number}: {remark.text}") if len(runs) > 1 else remark


def _by_system(sums, jobs, systems):
    """{metric: {system: its columns}} of sums that were made of all of them."""
    found, start = {job.metric.name: {} for job in jobs}, 0
    for job in jobs:
        for name in systems:
            found[job.metric.name][name] = sums[:, start : start + job.metric.width]
            start += job.metric.width
    return found


def _exchanged(metric, kept, totals, a, b):
    """(T,) scores of a and of b after they have exchanged the segments that were not kept."""
    return (
        metric.corpus(kept[a] + totals[b] - kept[b]),
        metric.corpus(kept[b] + totals[a] - kept[a]),
    )


def _info(job, plan):
    """With the test in the signature, where sacreBLEU has it."""
    details = dict(job.details)
    signature = {"nrefs": details.pop("nrefs", "1"), "bs": plan.resamples}
    if plan.test == "ar":
        signature["ar"] = plan.trials
    signature |= {"seed": plan.seed} | details
    metric = job.metric
    # In one line: the name of a model's folder may have any characters.
    text = " ".join(visible("|".join(f"{key}:{value}" for key, value in signature.items())).split())
    return MetricInfo(metric.name, metric.label, metric.higher_is_better, text)
