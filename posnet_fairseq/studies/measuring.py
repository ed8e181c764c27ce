"""What is measured of a trained run of a study: its beam, translations, precision, size, cost and curves."""

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posnet_eval.metrics.base import Metric
from posnet_fairseq.runs import commands
from posnet_fairseq.runs.comparison import MODEL, decoding_speed, parameters, peak_memory
from posnet_fairseq.runs.dataset import TranslationData
from posnet_fairseq.runs.devices import Device
from posnet_fairseq.runs.run import run_attached, run_stage, stage_of
from posnet_fairseq.runs.run_settings import RunSettings
from posnet_fairseq.runs.training_log import best_validation, cpu_seconds_per_update, records, training_speed
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import Record
from posnet_fairseq.studies import results, update_cost


def choose_beam(
    settings: RunSettings, data: TranslationData, device: Device, beams: Sequence[int], bleu: Metric
) -> tuple[int, dict[str, float]]:
    """Return the beam whose translation of the validation set has the highest BLEU, the smallest of equal ones.

    Returns:
        the beam, and BLEU by beam; without BLEU if there is one beam.
    """
    found: dict[str, float] = {}
    if len(beams) == 1:
        return beams[0], found
    for beam in beams:
        output = f"valid.beam{beam}.{data.target}"
        command = commands.translate(dataclasses.replace(settings, beam=beam), data, device, "valid", output)
        run_stage(settings, data, f"beam-{beam}", MODEL, output, command)
        reference = settings.data_folder / f"valid.{data.target}"
        scored = results.scored({"bleu": bleu}, settings.run / output, reference)["bleu"]
        found[str(beam)] = round(scored.score, 2)
    return max(sorted(beams), key=lambda beam: found[str(beam)]), found


def translated(
    settings: RunSettings, data: TranslationData, device: Device, metrics: Mapping[str, Metric]
) -> dict[str, Any]:
    """Return the scores of all test sets, in float32 and int8."""
    found: dict[str, Any] = {}
    for name in data.test_sets:
        found[name] = {}
        for precision, more in {"float32": (), "int8": ("--dtype", "int8")}.items():
            output = f"{name}.{precision}.{data.target}"
            command = commands.translate(settings, data, device, name, output, *more)
            stage = f"{stage_of('translate', name)}-{precision}"
            run_stage(settings, data, stage, MODEL, output, command)
            scores = results.scored(metrics, settings.run / output, settings.data_folder / f"{name}.{data.target}")
            speed = {
                "cpu_seconds": cpu_seconds(settings.run / f"{stage}.json"),
                "sentences_per_second": decoding_speed(settings.run, stage),
            }
            found[name][precision] = scores | speed
    return found


def model_of(settings: RunSettings) -> dict[str, int]:
    """Return the number of parameters with stored energies, and the bytes of the folder of posnet-export."""
    with tempfile.TemporaryDirectory(dir=settings.run) as place:
        folder = Path(place, "model")
        run_attached(
            ["posnet-export", str(settings.run / MODEL), "--data", str(settings.data_folder), "--out", str(folder)]
        )
        size = sum(path.stat().st_size for path in folder.iterdir())
    return {"parameters": parameters(settings.run), "folder_bytes": size}


def training_of(run: Path) -> dict[str, Any]:
    """Return what a training took and what became of it: its length, time, memory and curves."""
    log, record = run / "train.log", Record(run / "train.json")
    valid = {int(values["valid_num_updates"]): values["valid_ppl"] for kind, values in records(log) if kind == "valid"}
    train = {int(values["num_updates"]): values["nll_loss"] for kind, values in records(log) if kind == "train_inner"}
    step = max(1, len(train) // 100)
    perplexity, best = best_validation(log)
    last = record.content["attempts"][-1]
    return {
        "updates": max(valid),
        "best_update": best,
        "best_perplexity": perplexity,
        "seconds": record.content["seconds"],
        "cpu_seconds_per_update": cpu_seconds_per_update(log),
        "attempts": len(record.content["attempts"]),
        "tokens_per_second": training_speed(log),
        "peak_memory_bytes": peak_memory(run),
        "validation": {"updates": list(valid), "perplexity": list(valid.values())},
        "loss": {"updates": list(train)[::step], "bits": list(train.values())[::step]},
        "surroundings": {name: last[name] for name in ("started", "commit", "versions", "machine")},
    }


def cost_of(
    settings: RunSettings, baseline: RunSettings, data: TranslationData, device: Device
) -> dict[str, Any] | None:
    """Return what an update costs, relative to one of a baseline, see :mod:`posnet_fairseq.studies.update_cost`.

    Returns:
        ``relative``, ``other_seconds`` (of an update of the baseline) and ``updates`` (measured of each); None of a
        training on several processes.
    """
    if device.processes * settings.nodes > 1:
        return None
    out = settings.run / "cost-of-updates.json"
    report = ProgressReporter()
    # A longer training costs no more for each update.
    trainings = [
        commands.training(dataclasses.replace(each, updates=update_cost.UPDATES), data, device, report).arguments
        for each in (settings, baseline)
    ]
    run_stage(settings, data, "cost", "train.json", out.name, update_cost.measuring(out, *trainings))
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def cpu_seconds(path: Path) -> float | None:
    """Return CPU seconds of all attempts of a stage; None if one was killed, which leaves none."""
    found = [attempt.get("cpu_seconds") for attempt in Record(path).content["attempts"]]
    return None if None in found else round(sum(found), 1)
