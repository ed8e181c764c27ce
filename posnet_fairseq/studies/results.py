"""Results of single runs of a study: small JSON files from which every table and picture is made again."""

import base64
import json
import lzma
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct, to_builtins

from posnet_eval.metrics.base import FloatArray, Metric, Segment
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.schema import read_json
from posnet_fairseq.studies.protocol import Study
from posnet_fairseq.text.plain import read_parallel

PRECISIONS = ("float32", "int8")
Count = Annotated[int, Meta(gt=0, le=2**62)]
Positive = Annotated[float, Meta(gt=0, le=2**62)]


class Segments(Struct):
    """Statistics of segments, (N, K) whole numbers below 2³¹, in a form for JSON.

    Statistics of BLEU and chrF count n-grams of 1, 2 ... tokens, of which a sentence has one less each time. So each
    column is written as its difference from the one `step` before (1 in BLEU, 3 in chrF), byte by byte, (4, K, N), most
    of which are then equal: half of what lzma makes of the numbers themselves. `lzma` is in base64.
    """

    shape: tuple[Count, Count]
    step: Literal[1, 3]
    lzma: str

    def __post_init__(self) -> None:
        self.unpack()

    @classmethod
    def pack(cls, statistics: FloatArray, step: Literal[1, 3]) -> "Segments":
        """Return (N, K) statistics in their small form."""
        columns = statistics.T.astype("<i4", order="C")
        columns[step:] = columns[:-step] - columns[step:]
        planes = columns[..., None].view("u1").transpose(2, 0, 1)
        data = base64.b64encode(lzma.compress(planes.tobytes(), preset=6))
        return cls((len(statistics), statistics.shape[1]), step, data.decode("ascii"))

    def unpack(self) -> FloatArray:
        """Return the (N, K) statistics."""
        segments, width = self.shape
        try:
            data = np.frombuffer(lzma.decompress(base64.b64decode(self.lzma)), "u1")
            planes = data.reshape(4, width, segments).transpose(1, 2, 0)
        except (ValueError, lzma.LZMAError) as error:
            raise ValueError("the numbers of a score are damaged") from error
        columns = np.ascontiguousarray(planes).view("<i4")[..., 0]
        for column in range(self.step, width):
            columns[column] = columns[column - self.step] - columns[column]
        return columns.T.astype(np.float64)


class Score(Struct):
    """A score of a translation."""

    score: Annotated[float, Meta(ge=0, le=100)]
    signature: dict[str, str]
    segments: Segments


class _Translation(Struct):
    bleu: Score
    chrf: Score
    cpu_seconds: Positive | None  # None: not known
    bleu_literature: Score | None = None


class _TestSet(Struct):
    float32: _Translation
    int8: _Translation

    def __post_init__(self) -> None:
        scores = [
            score for of in (self.float32, self.int8) for score in (of.bleu, of.chrf, of.bleu_literature) if score
        ]
        if {score.segments.shape[0] for score in scores} != {self.lines}:
            raise ValueError("translations of a test set have different numbers of lines")

    @property
    def lines(self) -> int:
        """The number of segments."""
        return self.float32.bleu.segments.shape[0]


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


class Result(Struct):
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


def path_of(folder: Path, system: str, seed: int) -> Path:
    """Return the file of a run's result in the folder of a study."""
    return folder / f"{system}_s{seed}.json"


def scored(metrics: Mapping[str, Metric], hypotheses: Path, references: Path) -> dict[str, Score]:
    """Return the scores of a translation by metric."""
    texts = zip(*read_parallel(hypotheses, references), strict=True)
    segments = [Segment("", line, (reference,)) for line, reference in texts]
    found = {}
    for name, metric in metrics.items():
        rows = np.empty((len(segments), metric.width))
        for part, numbers in metric.statistics(segments):
            rows[list(part)] = numbers
        score = round(float(metric.corpus(rows.sum(0))), 4)
        found[name] = Score(score, metric.details(), Segments.pack(rows, 3 if name == "chrf" else 1))
    return found


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result, whole or not at all, a part on each line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = (f'"{name}": {json.dumps(part, ensure_ascii=False)}' for name, part in to_builtins(result).items())
    write_lines(path, ["{", ",\n".join(parts), "}"])


def read(path: Path, study: Study) -> Result:
    """Return the result of a run of a study."""
    result: Result = read_json(path, Result, "result of a run of a study", "Remove it, and run that run again.")
    right = path_of(path.parent, result.system, result.seed)
    if path != right:
        raise UsageError(f"{path} has the result of {right.stem}. Remove it, or rename it to {right.name}.")
    translations = [each for of in result.test_sets.values() for each in (of.float32, of.int8)]
    complete = study.literature is None or all(each.bleu_literature for each in translations)
    if not complete or (result.study, result.test_sets.keys()) != (study.name, study.test_sets.keys()):
        raise UsageError(f"{path} is of another study than {study.name}, or of other test sets. Move it elsewhere.")
    return result


def read_all(folder: Path, study: Study) -> dict[str, list[Result]]:
    """Return the results of a study's systems, by seed; systems without any are left out."""
    found = {path: read(path, study) for path in sorted(folder.glob("*_s*.json"))}
    if not found:
        raise UsageError(f"{folder} has no results of this study. posnet-run study makes them.")
    _refuse_mixture("data", found, lambda run: run.data)
    _refuse_mixture("lines in their test sets", found, lambda run: [of.lines for of in run.test_sets.values()])
    systems: dict[str, list[Result]] = {}
    for system in study.systems:
        runs = {path: run for path, run in found.items() if run.system == system}
        _refuse_mixture("settings", runs, lambda run: run.settings)
        if runs:
            systems[system] = sorted(runs.values(), key=lambda run: run.seed)  # by path 10 comes before 2
    for path, run in found.items():
        if run.system not in systems:
            raise UsageError(f"{path} is of a system that {study.name} does not have. Move it elsewhere.")
    return systems


def _refuse_mixture(what: str, results: Mapping[Path, Result], part: Callable[[Result], object]) -> None:
    for path, run in results.items():
        first = next(iter(results))
        if part(run) != part(results[first]):
            raise UsageError(
                f"{path} and {first.name} were made with different {what}. Keep them in different folders."
            )
