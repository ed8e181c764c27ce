"""Results of single runs of a study: small JSON files from which every table and picture is made again."""

import base64
import io
import json
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct, to_builtins

from posnet_eval.metrics.base import FloatArray, Metric, Segment
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import reading, write_lines
from posnet_fairseq.shared.schema import read_json
from posnet_fairseq.studies.protocol import Study
from posnet_fairseq.text.plain import read_parallel

PRECISIONS = ("float32", "int8")
Count = Annotated[int, Meta(gt=0, le=2**62)]
Positive = Annotated[float, Meta(gt=0, le=2**62)]


class TranslationScore(Struct):
    """A score of a translation."""

    score: Annotated[float, Meta(ge=0, le=100)]
    signature: dict[str, str]


class _Translation(Struct):
    bleu: TranslationScore
    chrf: TranslationScore
    cpu_seconds: Positive | None  # None: not known
    bleu_literature: TranslationScore | None = None


class _TestSet(Struct, dict=True):
    float32: _Translation
    int8: _Translation
    segments: dict[str, str]  # by metric: (N, 2 K) statistics of N segments in both precisions, as packed() has them

    def __post_init__(self) -> None:
        if len(self.lines) > 1:
            raise ValueError("the metrics have statistics of different numbers of lines")

    @property
    def lines(self) -> set[int]:
        """The numbers of lines by its metrics, in a file one number."""
        return {len(rows) for of_metric in self.statistics.values() for rows in of_metric.values()}

    @cached_property
    def statistics(self) -> dict[str, dict[str, FloatArray]]:
        """(N, K) statistics by metric and precision."""
        return {
            metric: dict(zip(PRECISIONS, np.hsplit(unpacked(text), len(PRECISIONS)), strict=True))
            for metric, text in self.segments.items()
        }


class _Joined(Struct, dict=True):
    bleu: TranslationScore
    segments: str  # as packed() has them

    def __post_init__(self) -> None:
        self.statistics  # noqa: B018  (refuses damaged numbers when a file is read)

    @cached_property
    def statistics(self) -> FloatArray:
        """(N, K) statistics of BLEU of N groups of sentences."""
        return unpacked(self.segments)


class _Course(Struct):
    updates: Annotated[list[Count], Meta(min_length=1)]
    perplexity: list[Positive]  # of the validation set

    def __post_init__(self) -> None:
        if len(self.updates) != len(self.perplexity):
            raise ValueError(f"{len(self.perplexity)} perplexities are of {len(self.updates)} updates")


class _Cost(Struct):
    relative: Positive  # of an update, to one of the first baseline
    other_seconds: Positive  # of one of the first baseline


class _Training(Struct):
    updates: Count
    best_update: Count
    best_perplexity: Positive
    cpu_seconds_per_update: Positive | None
    attempts: Count
    validation: _Course
    cost: _Cost | None = None


class _Data(Struct):
    key: str
    source: str
    target: str


class _Search(Struct):
    beam: Count


class _Model(Struct):
    parameters: Count
    folder_bytes: Count


class RunResult(Struct):
    """The parts of a result that tables and pictures are made of; a file has more."""

    study: str
    system: str
    seed: Annotated[int, Meta(ge=0, le=2**62)]
    settings: dict[str, Any]
    data: _Data
    training: _Training
    search: _Search
    model: _Model
    test_sets: dict[str, _TestSet]
    joined: dict[str, _Joined] = {}  # by the number of sentences that are joined


def path_of(folder: Path, system: str, seed: int) -> Path:
    """Return the file of a run's result in the folder of a study."""
    return folder / f"{system}_s{seed}.json"


def packed(statistics: FloatArray) -> str:
    """Return whole numbers as lines of text, one for each row, compressed by zlib and in base64."""
    lines = (" ".join(map(str, row)) for row in statistics.astype(int).tolist())
    return base64.b64encode(zlib.compress("\n".join(lines).encode("ascii"), 9)).decode("ascii")


def unpacked(text: str) -> FloatArray:
    """Return the rows of numbers that :func:`packed` was given."""
    try:
        return np.loadtxt(io.BytesIO(zlib.decompress(base64.b64decode(text))), ndmin=2)
    except (ValueError, zlib.error) as error:
        raise ValueError("the numbers of a score are damaged") from error


def statistics_of(metric: Metric, hypotheses: Path, references: Path) -> FloatArray:
    """Return the (N, K) statistics of a translation of N lines by a metric."""
    texts = zip(*read_parallel(hypotheses, references), strict=True)
    segments = [Segment("", line, (reference,)) for line, reference in texts]
    rows = np.empty((len(segments), metric.width))
    for part, numbers in metric.statistics(segments):
        rows[list(part)] = numbers
    return rows


def score_of(metric: Metric, statistics: FloatArray) -> TranslationScore:
    """Return the score of a translation with (N, K) statistics."""
    return TranslationScore(round(float(metric.corpus(statistics.sum(0))), 4), metric.details())


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result, whole or not at all, a part on each line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = (f'"{name}": {json.dumps(part, ensure_ascii=False)}' for name, part in to_builtins(result).items())
    write_lines(path, ["{", ",\n".join(parts), "}"])


def read(path: Path, study: Study) -> RunResult:
    """Return the result of a run of a study."""
    result: RunResult = read_json(path, RunResult, "result of a run of a study", "Remove it, and run that run again.")
    right = path_of(path.parent, result.system, result.seed)
    if path != right:
        raise UsageError(f"{path} has the result of {right.stem}. Remove it, or rename it to {right.name}.")
    if result.study != study.name:
        raise UsageError(f"{path} is of the study {result.study}, not {study.name}. Give another folder (--results).")
    metrics = study.metrics(result.data.target).keys()
    belongs = result.system in study.systems and result.test_sets.keys() == study.test_sets.keys()
    if not belongs or any(test_set.segments.keys() != metrics for test_set in result.test_sets.values()):
        raise UsageError(
            f"{path} is of a version of {study.name} with other systems, test sets or metrics. Move it elsewhere."
        )
    return result


def read_all(folder: Path, study: Study) -> dict[str, list[RunResult]]:
    """Return the results of a study's systems, by seed; systems without any are left out."""
    with reading(folder):
        paths = sorted(path for path in folder.iterdir() if path.match("*_s*.json")) if folder.exists() else []
    results = {path: read(path, study) for path in paths}
    if not results:
        raise UsageError(f"{folder} has no results of this study. posnet-run study makes them.")
    _refuse_mixture("data", results, lambda run: run.data)
    _refuse_mixture("numbers of lines", results, lambda run: {name: of.lines for name, of in run.test_sets.items()})
    of_systems = ("mixer", "options")  # what they may differ in
    _refuse_mixture("settings", results, lambda run: {k: v for k, v in run.settings.items() if k not in of_systems})
    systems: dict[str, list[RunResult]] = {}
    for system in study.systems:
        runs = {path: run for path, run in results.items() if run.system == system}
        _refuse_mixture("settings", runs, lambda run: run.settings)
        if runs:
            systems[system] = sorted(runs.values(), key=lambda run: run.seed)  # by path 10 comes before 2
    return systems


def _refuse_mixture(what: str, results: Mapping[Path, RunResult], part: Callable[[RunResult], object]) -> None:
    for path, run in results.items():
        first = next(iter(results))
        if part(run) != part(results[first]):
            raise UsageError(
                f"{path} and {first.name} were made with different {what}. Keep them in different folders."
            )
