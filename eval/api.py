"""Scoring from Python."""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeGuard

from posnet_eval.inputs.loading import load
from posnet_eval.inputs.plan import (
    MODELS,
    MULTI_REFERENCE,
    RESAMPLES,
    RUNNING,
    SEED,
    SETTINGS,
    TRIALS,
    Text,
    metric_names,
    plan_of_one_test_set,
)
from posnet_eval.report.tables import show
from posnet_eval.statistics.results import Comparison
from posnet_eval.statistics.scoring import compare
from posnet_fairseq.shared.errors import UsageError, called_from_python, refuse_unknown_arguments
from posnet_fairseq.shared.progress import ProgressReporter, plain_console
from posnet_fairseq.text.plain import LINE

SYSTEM = "system"  # name of a single system without one
_RENAMED = {"source": "sources", "reference": "references", "system": "hypotheses"}  # options as arguments


@dataclass(frozen=True, repr=False)
class Result(Comparison):
    """Systems compared on test sets; as text, the tables that posnet-score prints."""

    def __repr__(self) -> str:
        file = io.StringIO()
        show(self, plain_console(file=file, width=80, height=25, color_system=None))
        return "\n".join(line.rstrip() for line in file.getvalue().rstrip().split("\n"))


TextLike = PathLike[str] | Iterable[str]
RunsLike = TextLike | Sequence[TextLike]


@refuse_unknown_arguments()
def score(
    hypotheses: RunsLike | Mapping[str, RunsLike],
    references: RunsLike | None = None,
    sources: TextLike | None = None,
    *,
    metrics: str | Sequence[str] = ("bleu", "chrf"),
    baseline: str | Sequence[str] | None = None,
    test_set: str | None = None,
    language_pair: str | None = None,
    groups: TextLike | None = None,
    test: str | None = None,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
    seed: int = SEED,
    lowercase: bool = False,
    tokenize: str | None = None,
    multi_reference: str = MULTI_REFERENCE[0],
    bleurt_model: str | PathLike[str] | None = None,
    comet_model: str | PathLike[str] | None = None,
    comet_kiwi_model: str | PathLike[str] | None = None,
    comet_encoder: str | PathLike[str] | None = None,
    skip_missing: bool = False,
    cached_only: bool = False,
    cache: str | PathLike[str] | None = None,
    device: str | None = None,
    cpu: bool = False,
    workers: int = 1,
    progress: bool = False,
) -> Result:
    """Score translations, and test which differences between systems are significant.

    A text is a sequence of lines, or the path of a file (a :class:`pathlib.Path`), which is read as posnet-score reads
    it. See ``posnet-score --help`` for arguments without a description.

    Args:
        hypotheses: N lines of a single system, or {name: N lines} of several. Instead of N lines, a system may have a
            list of several runs (seeds), each N lines.
        references: N lines of the reference translation, or a list of several reference translations: an empty line
            means no reference for that line. COMETKiwi needs none.
        sources: N lines of the source text, which COMET and COMETKiwi need.
        metrics: names, of bleu, chrf, chrf++, ter, bleurt, comet and comet-kiwi.
        baseline: system that differences are tested against, or two of them; default: the first system.
        test_set: name of one of sacreBLEU's test sets, instead of `references` and `sources`.
        language_pair: as "en-de", which chooses BLEU's tokenizer and TER's units; default: for files, their endings.
        groups: the group of each of the N lines, such as its domain, of 20 at most; ``test_sets[0].by_group`` has their
            scores.
        test: "shift" (two-sided paired bootstrap), "bs" (paired bootstrap) or "ar" (approximate randomization), over
            sentences only, "bs" and "ar" with sacreBLEU's p; default: over sentences and seeds if a system has several
            runs, else "shift".
        multi_reference: what COMET and BLEURT take of the scores of a segment with several references: "mean" or "max".
        resamples: number of resamples of the bootstrap.
        trials: number of trials of approximate randomization.
        seed: seed of both.
        cache: file of cached statistics; default: as posnet-score, ``~/.cache/posnet/scores.sqlite``.
        device: of BLEURT and COMETs: "cpu", "cuda" for all GPUs, or one of them, as "cuda:1"; default: all GPUs, or the
            CPU if there are none.
        cpu: the same as the device "cpu".
        workers: number of processes that count n-grams and edits.
        progress: report progress on standard error.

    Returns:
        the result, whose text is posnet-score's table and whose :meth:`~Comparison.rows` make a table of pandas.

    Raises:
        UsageError: an argument or a file is wrong, or a metric cannot run.
    """
    given = locals()
    given |= {name: str(given[name]) for name in MODELS if isinstance(given[name], PathLike)}  # folders
    settings = {name: given[name] for name in (*SETTINGS, *RUNNING)} | ({"device": "cpu"} if cpu else {})
    with called_from_python(**_RENAMED):
        texts = dict.fromkeys(
            ("language_pair", "test_set", "test", "tokenize", "multi_reference", "device", *MODELS), str
        )
        switches = dict.fromkeys(("lowercase", "skip_missing", "cached_only", "cpu", "progress"), bool)
        for name, kind in (texts | switches).items():
            if not isinstance(given[name], kind | None):
                raise UsageError(f"{name} {given[name]!r:.60}: give a value of type {kind.__name__}.")
        if not isinstance(cache, str | PathLike | None):
            raise UsageError(f"cache {cache!r:.60}: give the path of a file.")
        chosen = metric_names(metrics if isinstance(metrics, str) else ",".join(_names(metrics)))
        settings |= {"metrics": chosen, "cache": None if cache is None else Path(cache)}
        plan = plan_of_one_test_set(
            _outputs(hypotheses),
            () if references is None else _texts(references, "references"),
            None if sources is None else _text(sources, "sources"),
            test_set,
            language_pair,
            None if groups is None else _text(groups, "groups"),
            **settings | ({} if baseline is None else {"baselines": _names(baseline)}),
        )
        return Result(**vars(compare(plan, load(plan), ProgressReporter(not progress))))


def _outputs(hypotheses: object) -> dict[str, tuple[Text, ...]]:
    """Return {system: one text for each run}."""
    if not isinstance(hypotheses, Mapping):
        return {SYSTEM: _texts(hypotheses, "hypotheses")}
    names = _names(hypotheses)
    if len(set(names)) < len(names):
        raise UsageError(f"hypotheses: systems {', '.join(names)}: give each a name of its own.")
    return {name: _texts(of, f"hypotheses of {name!r}") for name, of in zip(names, hypotheses.values(), strict=True)}


def _names(given: object) -> tuple[str, ...]:
    return tuple(map(str, given)) if isinstance(given, Iterable) and not isinstance(given, str) else (str(given),)


def _texts(given: object, name: str) -> tuple[Text, ...]:
    """Return one or several texts: a text, or a sequence of texts."""
    if _is_ordered(given):
        given = tuple(given)
        if given and not any(isinstance(item, str) for item in given):
            return tuple(_text(item, f"{name}, number {number}") for number, item in enumerate(given, 1))
    return (_text(given, name),)


def _text(given: object, name: str) -> Text:
    """Return a text: a path, or lines, each of which could be a line of a file in UTF-8."""
    if isinstance(given, PathLike):
        if "\0" in str(given):
            raise UsageError(f"{name}: {str(given)!r:.60} is no path.")
        return Path(given)
    lines = tuple(given) if _is_ordered(given) else (None,)
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str) or not LINE.fullmatch(line):
            raise UsageError(
                f"{name}: item {number} of {given!r:.60} is no line of text. Give a pathlib.Path, or a sequence of "
                "lines of type str, without line breaks, NUL characters and halves of surrogate pairs."
            )
    return lines


def _is_ordered(given: object) -> TypeGuard[Iterable[object]]:
    return isinstance(given, Iterable) and not isinstance(given, str | bytes | PathLike | set | frozenset | Mapping)
