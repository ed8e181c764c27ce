"""Scoring from Python."""

import contextlib
import functools
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from rich.console import Console

from posnet_eval.inputs.loading import Texts, load
from posnet_eval.inputs.plan import RESAMPLES, SEED, TRIALS, Lines, Plan, Text, plan_of_one_test_set
from posnet_eval.report.tables import show
from posnet_eval.statistics.cache import SegmentCache, default_path
from posnet_eval.statistics.results import Comparison
from posnet_eval.statistics.scoring import compare
from posnet_fairseq.shared.errors import UsageError, name_arguments
from posnet_fairseq.shared.processes import check_workers
from posnet_fairseq.shared.progress import ProgressReporter

SYSTEM = "system"  # name of a single system without one
_ENCODABLE = re.compile(r"[^\n\0\ud800-\udfff]*")
_RENAMED = {"--source": "sources", "--reference": "references", "--system": "hypotheses"}


@dataclass(frozen=True, repr=False)
class Result(Comparison):
    """Systems compared on test sets; as text, the tables that posnet-score prints."""

    def __repr__(self) -> str:
        file = io.StringIO()
        show(self, Console(file=file, width=80, height=25, highlight=False, color_system=None))
        return "\n".join(line.rstrip() for line in file.getvalue().rstrip().split("\n"))


def evaluate(
    plan: Plan,
    texts: Sequence[Texts],
    cache: Path | None,
    report: ProgressReporter,
    workers: int = 1,
    cpu: bool = False,
    cached_only: bool = False,
) -> Result:
    """Score loaded texts. Both :func:`score` and posnet-score call this function.

    Args:
        plan: what to compare, and how.
        texts: texts of each test set of the plan.
        cache: file of cached statistics; None: the default one, or none where that cannot be used.
        report: reporter of progress.
        workers: number of processes that count n-grams and edits.
        cpu: do not use GPUs.
        cached_only: take all statistics from the cache and compute none.

    Raises:
        UsageError: a metric cannot run, or the cache cannot be read.
    """
    with contextlib.closing(_open_cache(cache, cached_only, report)) as segments:
        comparison = compare(plan, texts, segments, report, workers, cpu, cached_only)
        if segments.full:
            report.say(
                f"the cache {segments.path} could not be written ({segments.full}): the next run computes this again."
            )
    return Result(**vars(comparison))


def _open_cache(path: Path | None, needed: bool, report: ProgressReporter) -> SegmentCache:
    """Open the cache at a path, else the default one, which one can do without unless it is needed."""
    try:
        return SegmentCache(path or default_path())
    except UsageError as error:
        if path or needed:
            raise
        report.say(f"no statistics are cached: {default_path()} cannot be used ({error.__cause__}).")
        return SegmentCache(None)


TextLike = PathLike[str] | Iterable[str]
RunsLike = TextLike | Sequence[TextLike]


def score(
    hypotheses: RunsLike | Mapping[str, RunsLike],
    references: RunsLike | None = None,
    sources: TextLike | None = None,
    *,
    metrics: str | Sequence[str] = ("bleu", "chrf"),
    baseline: str | Sequence[str] | None = None,
    test_set: str | None = None,
    language_pair: str | None = None,
    test: str | None = None,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
    seed: int = SEED,
    lowercase: bool = False,
    tokenize: str | None = None,
    bleurt_model: str | None = None,
    comet_model: str | None = None,
    comet_encoder: str | None = None,
    skip_missing: bool = False,
    cached_only: bool = False,
    cache: str | PathLike[str] | None = None,
    cpu: bool = False,
    workers: int = 1,
    progress: bool = False,
) -> Result:
    """Score translations, and test which differences between systems are significant.

    A text is a sequence of lines, or the path of a file (a :class:`pathlib.Path`), which is read as posnet-score reads
    it. Arguments without a description are posnet-score's options.

    Args:
        hypotheses: N lines of a single system, or {name: N lines} of several. Instead of N lines, a system may have a
            list of several runs (seeds), each N lines.
        references: N lines of the reference translation, or a list of several reference translations.
        sources: N lines of the source text, which COMET needs.
        metrics: names, of bleu, chrf, ter, bleurt and comet.
        baseline: system that differences are tested against, or two of them; default: the first system.
        test_set: name of one of sacreBLEU's test sets, instead of `references` and `sources`.
        language_pair: as "en-de", which chooses BLEU's tokeniser and TER's units; default: for files, their two-letter
            endings.
        test: "bs" (paired bootstrap) or "ar" (approximate randomisation), over sentences only, with sacreBLEU's p;
            default: over sentences and seeds if a system has several runs, else "bs".
        resamples: number of resamples of the bootstrap.
        trials: number of trials of approximate randomisation.
        seed: seed of both.
        cache: file of cached statistics; default: as posnet-score, ``~/.cache/posnet/scores.sqlite``.
        workers: number of processes that count n-grams and edits.
        progress: report progress on standard error.

    Returns:
        the result, whose text is posnet-score's table and whose :meth:`~Comparison.rows` make a table of pandas.

    Raises:
        UsageError: an argument or a file is wrong, or a metric cannot run.
    """
    with _naming_arguments():
        for name, number in {"resamples": resamples, "trials": trials, "seed": seed, "workers": workers}.items():
            if isinstance(number, bool) or not isinstance(number, int):
                raise UsageError(f"{name} {number!r}: give a whole number.")
        check_workers(workers)
        baselines = {} if baseline is None else {"baselines": _names(baseline, "baseline")}
        plan = plan_of_one_test_set(
            _outputs(hypotheses),
            () if references is None else _texts(references, "references"),
            None if sources is None else _text(sources, "sources"),
            test_set or "",
            language_pair or "",
            metrics=_names(metrics, "metrics"),
            test=test,
            resamples=resamples,
            trials=trials,
            seed=seed,
            lowercase=lowercase,
            tokenize=tokenize,
            bleurt_model=bleurt_model,
            comet_model=comet_model,
            comet_encoder=comet_encoder,
            **baselines,
        )
        place = None if cache is None else Path(cache)
        return evaluate(
            plan, load(plan, skip_missing), place, ProgressReporter(not progress), workers, cpu, cached_only
        )


def _outputs(hypotheses: object) -> dict[str, tuple[Text, ...]]:
    """Return {system: one text for each run}."""
    if not isinstance(hypotheses, Mapping):
        return {SYSTEM: _texts(hypotheses, "hypotheses")}
    if not hypotheses:
        raise UsageError("hypotheses is empty. Give lines, or lines of each system.")
    names = _names(list(hypotheses), "names of hypotheses")
    return {name: _texts(hypotheses[name], f"hypotheses of {name!r}") for name in names}


def _names(given: object, what: str) -> tuple[str, ...]:
    """Return one or several names."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f"{what}: {given!r} given. Give text of type str, or a list of such.")
    return names


def _texts(given: object, name: str) -> tuple[Text, ...]:
    """Return one or several texts: a text, or a sequence of texts."""
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | PathLike):
        items = tuple(given)
        if items and not any(isinstance(item, str) for item in items):
            return tuple(_text(item, f"{name}, number {number}") for number, item in enumerate(items, 1))
        given = items
    return (_text(given, name),)


def _text(given: object, name: str) -> Text:
    """Return a text: a path, or checked lines.

    Raises:
        UsageError: it is no text, or a line could be no line of a file in UTF-8.
    """
    if isinstance(given, PathLike):
        return Path(given)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise UsageError(f"{name}: {type(given).__name__} given. Give a sequence of lines, or a pathlib.Path.")
    lines: Lines = tuple(given)
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise UsageError(f"{name}: item {number} is a {type(line).__name__}. Give lines of type str.")
        if not _ENCODABLE.fullmatch(line):
            raise UsageError(
                f"{name}: line {number} has a line break, a NUL character or half of a surrogate pair. Give one line "
                "of text for each segment."
            )
    return lines


@functools.cache
def arguments_of_options() -> dict[str, str]:
    """Return {option of posnet-score: argument of :func:`score`}."""
    names = score.__kwdefaults__ or ()
    return _RENAMED | {f"--{name.replace('_', '-')}": name for name in names}


@contextlib.contextmanager
def _naming_arguments() -> Iterator[None]:
    """Let errors name arguments of :func:`score` instead of options of posnet-score."""
    try:
        yield
    except UsageError as error:
        raise UsageError(name_arguments(str(error), arguments_of_options())) from error.__cause__
