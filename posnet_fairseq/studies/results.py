"""Results of single runs of a study: small JSON files from which every table and picture is made again."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posnet_eval.metrics.base import Metric, Segment
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import replacing
from posnet_fairseq.shared.records import read_json
from posnet_fairseq.studies.compression import pack, unpack
from posnet_fairseq.studies.form import PRECISIONS, fault
from posnet_fairseq.studies.metrics import metrics_of
from posnet_fairseq.studies.protocol import Study
from posnet_fairseq.text.plain import read_parallel


def path_of(folder: Path, system: str, seed: int) -> Path:
    """The file of a run's result in the folder of a study."""
    return folder / f"{system}_s{seed}.json"


def scored(metrics: Mapping[str, Metric], hypotheses: Path, references: Path) -> dict[str, Any]:
    """Return the scores of a translation by metric, with the statistics of its segments packed."""
    texts = zip(*read_parallel(hypotheses, references), strict=True)
    segments = [Segment("", line, (reference,)) for line, reference in texts]
    found = {}
    for name, metric in metrics.items():
        rows = np.empty((len(segments), metric.width))
        for part, numbers in metric.statistics(segments):
            rows[list(part)] = numbers
        score = round(float(metric.corpus(rows.sum(0))), 4)
        found[name] = {"score": score, "signature": metric.details(), "segments": pack(rows)}
    return found


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result, whole or not at all, a part on each line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = (f"{json.dumps(name)}: {json.dumps(part, ensure_ascii=False)}" for name, part in result.items())
    with replacing(path) as temporary:
        temporary.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def read(path: Path, study: Study) -> dict[str, Any]:
    """A result.

    Args:
        path: its file.
        study: of the run.

    Raises:
        UsageError: the file is damaged, is not named after its run, or is of another study.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise UsageError(f"{path} is no result of a run of a study. Remove it, and run that run again.")
    if wrong := fault(content, study.metrics):
        raise UsageError(f"{path} is no result of a run of a study: {wrong}. Remove it, and run that run again.")
    metrics = metrics_of(content["data"]["target"], study.literature)
    for name, metric, found in _scores(content, study.metrics):
        numbers, made = unpack(found["segments"]), metrics[metric]
        width = numbers.shape[1]
        if width != made.width or not math.isclose(made.corpus(numbers.sum(0)), found["score"], abs_tol=1e-3):
            raise UsageError(
                f"{path}: the {metric} of {name} is {found['score']}, which is not the score of its segments. Copy the "
                "file again, or remove it and run that run again."
            )
    right = path_of(path.parent, content["system"], content["seed"])
    if path != right:
        raise UsageError(f"{path} has the result of {right.stem}. Remove it, or rename it to {right.name}.")
    if content["study"] != study.name or content["test_sets"].keys() != study.test_sets.keys():
        raise UsageError(f"{path} is of another study than {study.name}, or of other test sets. Move it elsewhere.")
    return content


def _scores(result: Mapping[str, Any], metrics: Sequence[str]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Test set, metric, and the score with its segments."""
    for name, translated in result["test_sets"].items():
        for precision in PRECISIONS:
            yield from ((name, metric, translated[precision][metric]) for metric in metrics)


def read_all(folder: Path, study: Study) -> dict[str, list[dict[str, Any]]]:
    """The results of a study's systems, by seed; systems without any are left out.

    Args:
        folder: of the results.
        study: its protocol.

    Raises:
        UsageError: a file is no result of the study, see :func:`read`, is of other data or other settings than the
            rest, or of a system that the study does not have; or there are none.
    """
    found: dict[str, dict[Path, dict[str, Any]]] = {system: {} for system in study.seeds}
    for path in sorted(folder.glob("*_s*.json")):
        run = read(path, study)
        if run["system"] not in found:
            raise UsageError(f"{path} is of a system that {study.name} does not have. Move it elsewhere.")
        found[run["system"]][path] = run
    found = {system: runs for system, runs in found.items() if runs}
    if not found:
        raise UsageError(f"{folder} has no results of this study. posnet-run study makes them.")
    for runs in found.values():
        _refuse_mixture("settings", lambda run: run["settings"], runs)
    every = {path: run for runs in found.values() for path, run in runs.items()}
    _refuse_mixture("data", lambda run: run["data"], every)
    _refuse_mixture("lines in their test sets", _lines, every)
    # Not by path, where 10 comes before 2.
    return {system: sorted(runs.values(), key=lambda run: run["seed"]) for system, runs in found.items()}


def _lines(run: Mapping[str, Any]) -> dict[str, int]:
    """The number of lines of each test set."""
    return {name: found["float32"]["bleu"]["segments"]["shape"][0] for name, found in run["test_sets"].items()}


def _refuse_mixture(
    what: str, part: Callable[[Mapping[str, Any]], object], results: Mapping[Path, Mapping[str, Any]]
) -> None:
    first, *others = results
    for path in others:
        if part(results[path]) != part(results[first]):
            raise UsageError(
                f"{path} and {first.name} were made with different {what}. Keep them in different folders."
            )
