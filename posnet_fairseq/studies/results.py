"""Results of single runs of a study: small JSON files from which every table and picture is made again."""

import base64
import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import FloatArray, MetricOptions, Segment
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import read_parallel, replacing
from posnet_fairseq.shared.records import read_json
from posnet_fairseq.studies.protocol import Study

METRICS = ("bleu", "chrf")
STEPS = (1, 3)  # columns between n-grams of two lengths, in BLEU and in chrF
PRECISIONS = ("float32", "int8")
_PARTS = {
    "settings": set(),
    "data": {"key", "source", "target"},
    "training": {"updates", "best_update", "best_perplexity", "cpu_seconds_per_update", "attempts", "validation"},
    "search": {"beam"},
    "model": {"parameters", "folder_bytes"},
}
_KEYS = {"study", "system", "seed", "test_sets", *_PARTS}
_COST = {"relative", "other_seconds"}


def path_of(folder: Path, system: str, seed: int) -> Path:
    """The file of a run's result in the folder of a study."""
    return folder / f"{system}_s{seed}.json"


def pack(statistics: FloatArray) -> dict[str, Any]:
    """Whole numbers in a form for JSON.

    Statistics of BLEU and chrF count n-grams of 1, 2 ... tokens, of which a sentence has one less each time. So each
    column is written as its difference from an earlier one, byte by byte, most of which are then equal: half of what
    lzma makes of the numbers themselves.

    Args:
        statistics: (N, K) numbers below 2³¹.
    """
    return min((_packed(statistics, step) for step in STEPS), key=lambda packed: len(packed["lzma"]))


def _packed(statistics: FloatArray, step: int) -> dict[str, Any]:
    columns = statistics.T.astype("<i4", order="C")
    columns[step:] = columns[:-step] - columns[step:]
    planes = columns[..., None].view("u1").transpose(2, 0, 1)
    data = lzma.compress(planes.tobytes(), preset=9)
    return {"shape": list(statistics.shape), "step": step, "lzma": base64.b64encode(data).decode("ascii")}


def unpack(packed: Mapping[str, Any]) -> FloatArray:
    """The numbers of :func:`pack`."""
    (segments, width), step = packed["shape"], packed["step"]
    planes = np.frombuffer(lzma.decompress(base64.b64decode(packed["lzma"])), "u1").reshape(4, width, segments)
    columns = np.ascontiguousarray(planes.transpose(1, 2, 0)).view("<i4")[..., 0]
    for column in range(step, width):
        columns[column] = columns[column - step] - columns[column]
    return columns.T.astype(np.float64)


def statistics_of(metric: str, language: str, hypotheses: Path, references: Path) -> FloatArray:
    """The (N, K) statistics of a translation, see :meth:`posnet_eval.metrics.base.Metric.statistics`."""
    made = get_metric(metric, MetricOptions(language=language))
    segments = [
        Segment("", line, (wanted,)) for line, wanted in zip(*read_parallel(hypotheses, references), strict=True)
    ]
    rows = np.empty((len(segments), made.width))
    for part, numbers in made.statistics(segments):
        rows[list(part)] = numbers
    return rows


def score_of(metric: str, language: str, statistics: FloatArray) -> float:
    """The corpus score of (N, K) statistics."""
    return float(get_metric(metric, MetricOptions(language=language)).corpus(statistics.sum(0)))


def scored(language: str, hypotheses: Path, references: Path) -> dict[str, Any]:
    """The scores of a translation by metric, with the statistics of its segments packed."""
    found = {}
    for metric in METRICS:
        statistics = statistics_of(metric, language, hypotheses, references)
        found[metric] = {
            "score": round(score_of(metric, language, statistics), 4),
            "signature": get_metric(metric, MetricOptions(language=language)).details(),
            "segments": pack(statistics),
        }
    return found


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result, whole or not at all, a part on each line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = (f"{json.dumps(name)}: {json.dumps(part, ensure_ascii=False)}" for name, part in result.items())
    with replacing(path) as temporary:
        temporary.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """A result.

    Raises:
        UsageError: the file is none, or damaged.
    """
    content = read_json(path)
    if not isinstance(content, dict) or not _is_complete(content):
        raise UsageError(f"{path} is no result of a run of a study. Remove it, and run that run again.")
    return content


def _is_complete(content: Mapping[str, Any]) -> bool:
    """Whether all is there of which tables and pictures are made."""
    try:
        complete = content.keys() >= _KEYS and isinstance(content["seed"], int)
        complete = complete and all(content[part].keys() >= names for part, names in _PARTS.items())
        cost = content["training"].get("cost")
        complete = complete and (cost is None or cost.keys() >= _COST)
        for translated in content["test_sets"].values():
            for precision in PRECISIONS:
                complete = complete and "cpu_seconds" in translated[precision]
                for metric in METRICS:
                    unpack(translated[precision][metric]["segments"])
    except (AttributeError, LookupError, TypeError, ValueError, lzma.LZMAError):
        return False
    return complete


def read_all(folder: Path, study: Study) -> dict[str, list[dict[str, Any]]]:
    """The results of a study's systems, by seed; systems without any are left out.

    Args:
        folder: of the results.
        study: its protocol.

    Raises:
        UsageError: a file is no result, is not named after its run, or is of another study, other data or other
            settings than the rest, or of a system that the study does not have; or there are none.
    """
    found: dict[str, dict[Path, dict[str, Any]]] = {system: {} for system in study.seeds}
    for path in sorted(folder.glob("*_s*.json")):
        run = read(path)
        right = path_of(folder, run["system"], run["seed"])
        if path != right:
            raise UsageError(f"{path} has the result of {right.stem}. Remove it, or rename it to {right.name}.")
        if run["study"] != study.name or run["test_sets"].keys() != study.test_sets.keys():
            raise UsageError(f"{path} is of another study than {study.name}, or of other test sets. Move it elsewhere.")
        if run["system"] not in found:
            raise UsageError(f"{path} is of a system that {study.name} does not have. Move it elsewhere.")
        found[run["system"]][path] = run
    found = {system: runs for system, runs in found.items() if runs}
    if not found:
        raise UsageError(f"{folder} has no results of this study. posnet-run study makes them.")
    for runs in found.values():
        _refuse_mixture("settings", runs)
    _refuse_mixture("data", {path: run for runs in found.values() for path, run in runs.items()})
    # Not by path, where 10 comes before 2.
    return {system: sorted(runs.values(), key=lambda run: run["seed"]) for system, runs in found.items()}


def _refuse_mixture(part: str, results: Mapping[Path, Mapping[str, Any]]) -> None:
    first, *others = results
    for path in others:
        if results[path][part] != results[first][part]:
            raise UsageError(
                f"{path} and {first.name} were made with different {part}. Keep them in different folders."
            )
