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
from posnet_fairseq.runs.run import Run, run_attached, stage_of
from posnet_fairseq.runs.run_settings import RunSettings
from posnet_fairseq.runs.training_log import best_validation, cpu_seconds_per_update, records, training_speed
from posnet_fairseq.shared.records import Record
from posnet_fairseq.studies import results, update_cost


def choose_beam(run: Run, beams: Sequence[int], bleu: Metric) -> tuple[int, dict[str, float]]:
    """Return the beam whose translation of the validation set has the highest BLEU, the smallest of equal ones.

    BLEU by beam is returned beside it; none if there is one beam.
    """
    found: dict[str, float] = {}
    if len(beams) == 1:
        return beams[0], found
    for beam in beams:
        output = f"valid.beam{beam}.{run.data.target}"
        settings = dataclasses.replace(run.settings, beam=beam)
        run.stage(f"beam-{beam}", MODEL, output, commands.translate(settings, run.data, run.device, "valid", output))
        found[str(beam)] = round(_scored(run, {"bleu": bleu}, output, "valid")["bleu"].score, 2)
    return max(sorted(beams), key=lambda beam: found[str(beam)]), found


def _scored(run: Run, metrics: Mapping[str, Metric], output: str, name: str) -> dict[str, results.Score]:
    reference = run.settings.data_folder / f"{name}.{run.data.target}"
    return results.scored(metrics, run.settings.run / output, reference)


def translated(run: Run, metrics: Mapping[str, Metric]) -> dict[str, Any]:
    """Return the scores of all test sets, in float32 and int8."""
    folder = run.settings.run
    found: dict[str, Any] = {name: {} for name in run.data.test_sets}
    for name, of_test_set in found.items():
        for precision, more in {"float32": (), "int8": ("--dtype", "int8")}.items():
            output, stage = f"{name}.{precision}.{run.data.target}", f"{stage_of('translate', name)}-{precision}"
            run.stage(stage, MODEL, output, commands.translate(run.settings, run.data, run.device, name, output, *more))
            of_test_set[precision] = _scored(run, metrics, output, name) | {
                "cpu_seconds": cpu_seconds(folder / f"{stage}.json"),
                "sentences_per_second": decoding_speed(folder, stage),
            }
    return found


def model_of(settings: RunSettings) -> dict[str, int]:
    """Return the number of parameters with stored energies, and the bytes of the folder of posnet-export."""
    with tempfile.TemporaryDirectory(dir=settings.run) as place:
        folder, model = Path(place, "model"), settings.run / MODEL
        run_attached(["posnet-export", str(model), "--data", str(settings.data_folder), "--out", str(folder)])
        size = sum(path.stat().st_size for path in folder.iterdir())
    return {"parameters": parameters(settings.run), "folder_bytes": size}


def training_of(folder: Path) -> dict[str, Any]:
    """Return what the training of a run took and what became of it: its length, time, memory and curves."""
    log, content = folder / "train.log", Record(folder / "train.json").content
    valid = {int(values["valid_num_updates"]): values["valid_ppl"] for kind, values in records(log) if kind == "valid"}
    train = {int(values["num_updates"]): values["nll_loss"] for kind, values in records(log) if kind == "train_inner"}
    step = max(1, len(train) // 100)
    perplexity, best = best_validation(log)
    last = content["attempts"][-1]
    return {
        "updates": max(valid),
        "best_update": best,
        "best_perplexity": perplexity,
        "seconds": content["seconds"],
        "cpu_seconds_per_update": cpu_seconds_per_update(log),
        "attempts": len(content["attempts"]),
        "tokens_per_second": training_speed(log),
        "peak_memory_bytes": peak_memory(folder),
        "validation": {"updates": list(valid), "perplexity": list(valid.values())},
        "loss": {"updates": list(train)[::step], "bits": list(train.values())[::step]},
        "surroundings": {name: last[name] for name in ("started", "commit", "versions", "machine")},
    }


def cost_of(run: Run, baseline: RunSettings) -> dict[str, Any] | None:
    """Return what an update costs, as :mod:`posnet_fairseq.studies.update_cost` measures it against a baseline.

    None for a training on several processes.
    """
    if run.device.processes * run.settings.nodes > 1:
        return None
    out = run.settings.run / "cost-of-updates.json"
    # A longer training costs no more for each update.
    trainings = [
        commands.training(dataclasses.replace(each, updates=update_cost.UPDATES), run.data, run.device, run.work.report)
        for each in (run.settings, baseline)
    ]
    command = update_cost.measuring(out, *(training.arguments for training in trainings))
    run.stage("cost", "train.json", out.name, command)
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def cpu_seconds(path: Path) -> float | None:
    """Return CPU seconds of all attempts of a stage; None if one was killed, which leaves none."""
    found = [attempt.get("cpu_seconds") for attempt in Record(path).content["attempts"]]
    return None if None in found else round(sum(found), 1)
