"""Runs of a study, each of which leaves a result: its beam, translations, precision, size, cost and curves."""

import dataclasses
import itertools
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from posnet_data_prep.pipeline.dataset_pipeline import joined_lines
from posnet_eval.metrics.base import FloatArray, Metric
from posnet_fairseq.runs import commands, parsers, training
from posnet_fairseq.runs.command_stage import Work
from posnet_fairseq.runs.comparison import MODEL, Model, decoding_speed, peak_memory
from posnet_fairseq.runs.devices import Device, shares
from posnet_fairseq.runs.jobs import do_all
from posnet_fairseq.runs.run_settings import RunSettings, TranslationData, hyperparameters
from posnet_fairseq.runs.settings import Settings, refuse, setting
from posnet_fairseq.runs.single_run import Run, prepare_data, run_or_exit, say, stage_of
from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.shared.files import check_folder, read_lines, write_lines
from posnet_fairseq.shared.progress import shown
from posnet_fairseq.shared.records import Record, changed
from posnet_fairseq.shared.schema import loads
from posnet_fairseq.studies import results, update_cost
from posnet_fairseq.studies.protocol import Study, known_studies, read_study

STAGES = ("train", "average", "precompute")
# Settings that a result does not depend on.
FREE = (
    *("runs", "data", "dry_run", "name", "seed", "metrics", "tensorboard"),
    *("cpus", "gpus", "nodes", "master_port", "max_tokens", "precision"),
)


@dataclass(frozen=True, kw_only=True)
class StudySettings(Settings):
    """Settings of a study: which of its runs are made, and where."""

    study: str = setting("study to run: " + ", ".join(known_studies()), "", positional="?", metavar="STUDY")
    only: tuple[str, ...] = setting(
        "run only these systems of the study, separated by spaces or commas (default: all)",
        (),
        parsers.several(str),
        metavar="SYSTEMS",
    )
    seed: tuple[int, ...] = setting(
        "run only these seeds, separated by spaces or commas (default: all of the protocol)",
        (),
        parsers.seed_numbers,
        metavar="SEEDS",
    )
    jobs: int = setting("number of runs side by side, on equal shares of the machine", 1, parsers.whole_number)
    cpus: int | None = setting("CPU processes of a training, instead of GPUs", parse=parsers.whole_number)
    precision: str = setting("of training: bf16, fp16 (GPUs only) or fp32", "fp32", parsers.precision)
    data: Path | None = setting("folder of the dataset (default: data/DATASET)", parse=parsers.folder)
    runs: Path | None = setting("folder of runs (default: runs/STUDY)", parse=parsers.folder)
    results: Path | None = setting("folder of results (default: results/STUDY)", parse=parsers.folder)
    dry_run: bool = setting("print the commands instead of running them", False, parsers.switch)

    @property
    def results_folder(self) -> Path:
        """The folder of results."""
        return self.results or Path.cwd() / "results" / self.study

    def result_of(self, run: RunSettings) -> Path:
        """Return the file of the result of a run."""
        return results.path_of(self.results_folder, run.system, run.seed)


def protocol_of(study: Study, run: RunSettings) -> dict[str, Any]:
    """Return what the result of a run depends on, by name."""
    texts = {name: text for name, text in run.texts().items() if name not in FREE}
    return texts | {"beams": list(study.beams)}


def has_result(study: Study, run: RunSettings, settings: StudySettings) -> bool:
    """Return whether the result of a run is there; refuse one that was made under another protocol."""
    path = settings.result_of(run)
    if not path.exists():
        return False
    before, now = results.read(path, study).settings, protocol_of(study, run)
    if different := sorted(changed(before, now)):
        raise UsageError(
            f"{shown(path)} was made under another protocol ({', '.join(different)}). Remove it to make the run again, "
            "or give another folder (--results)."
        )
    return True


def run_study(settings: StudySettings) -> None:
    """Make the runs that have no result yet."""
    study = read_study(settings.study)
    todo = []
    for run in (run_of(study, system, seed, settings) for system, seed in chosen(study, settings)):
        if has_result(study, run, settings):
            say(f"{run.run.name} has a result in {shown(settings.results_folder)}")
        else:
            todo.append(run)
    if todo:
        check_folder(settings.results_folder, "--results")
        parts = shares(min(settings.jobs, len(todo)), todo[0])
        if study.prepare and not (folder := todo[0].data_folder).exists():
            how = f"posnet-prepare {study.prepare} --out {shown(folder)}"
            raise UsageError(f"{shown(folder)} is not there. Make it: {how}")
        prepare_data(todo)
        _refuse_other_data(study, todo[0], settings)
        do_all(todo, parts, then=lambda run, work: measure_run(study, run, settings, work))


def measure_run(study: Study, run_settings: RunSettings, settings: StudySettings, work: Work) -> None:
    """Measure the model of a run whose stages are done, on one core, beside a run of the baseline; write the result."""
    if settings.dry_run:
        return
    work = dataclasses.replace(work, environment={**work.environment, "OMP_NUM_THREADS": "1"})
    run = Run(run_settings, TranslationData.read(run_settings.data_folder), Device("cpu", 1), work)
    metrics = study.metrics(run.data.target, run.data.lowercase)
    beam, tried = choose_beam(run, study.beams, metrics["bleu"])
    searching = dataclasses.replace(run, settings=dataclasses.replace(run_settings, beam=beam))
    baseline = run_of(study, study.baselines[0], run_settings.seed, settings)
    result: dict[str, Any] = {
        **{"study": study.name, "system": run_settings.system, "seed": run_settings.seed},
        "settings": protocol_of(study, run_settings),
        "data": {"key": run.data.key, "source": run.data.source, "target": run.data.target},
        "search": {"beam": beam, "validation_bleu": tried},
        "training": training_of(run_settings.run) | {"cost": cost_of(run, baseline)},
        "model": model_of(run_settings),
        "test_sets": translated(searching, metrics),
        "joined": joined(searching, study, metrics["bleu"]),
    }
    path = settings.result_of(run_settings)
    results.write_result(path, result)
    bleu = (f"{name}: {scores['float32']['bleu'].score:.1f} BLEU" for name, scores in result["test_sets"].items())
    work.report.say(f"{shown(path)}: {', '.join(bleu)}")


def chosen(study: Study, settings: StudySettings) -> list[tuple[str, int]]:
    """Return systems and seeds, seed by seed: all systems can be compared as soon as the first is done.

    A seed that is asked for by number is made of every system that is asked for, also beyond the protocol's.
    """
    systems = settings.only or tuple(study.systems)
    for name in systems:
        parsers.check_known(option("only", name), name, study.systems)
    beyond = settings.seed and settings.only
    seeds = settings.seed or sorted({seed for name in systems for seed in study.systems[name].seeds})
    runs = [(name, seed) for seed in seeds for name in systems if beyond or seed in study.systems[name].seeds]
    if not runs:
        asked = ",".join(map(str, seeds))
        refuse("seed", asked, "the protocol has no run with it. Name systems with --only to go beyond the protocol.")
    return runs


def run_of(study: Study, system: str, seed: int, settings: StudySettings) -> RunSettings:
    """Return the run of a system with a seed."""
    its, runs = study.systems[system], settings.runs or Path.cwd() / "runs" / study.name
    texts = {"mixer": its.mixer, "name": system, "options": its.options, "seed": str(seed)}
    places = {"runs": str(runs), "dry_run": str(int(settings.dry_run))}
    places |= {"data": str(settings.data)} if settings.data else {}
    device = {"cpus": str(settings.cpus or ""), "precision": settings.precision}
    return dataclasses.replace(RunSettings.parsed(study.settings | texts | places | device), stages=STAGES)


def _refuse_other_data(study: Study, run_settings: RunSettings, settings: StudySettings) -> None:
    """Refuse data that the results in the folder were not made with, before hours of training."""
    place = settings.results_folder
    data = TranslationData.read(run_settings.data_folder, settings.dry_run)
    if not data.exists:
        return
    if set(data.test_sets) != study.test_sets.keys():
        raise UsageError(
            f"{shown(run_settings.data_folder)} has the test sets {', '.join(data.test_sets)}, and {study.name} is "
            f"scored on {', '.join(study.test_sets)}. Give another folder (--data)."
        )
    if not any(place.glob("*_s*.json")):
        return
    (first, *_), *_ = results.read_all(place, study).values()
    if first.data.key != data.key:
        raise UsageError(
            f"the results in {shown(place)} were made with other data than that in {shown(run_settings.data_folder)}, "
            "so that new ones cannot be compared with them. Give another folder (--results)."
        )


def choose_beam(run: Run, beams: Sequence[int], bleu: Metric) -> tuple[int, dict[str, float]]:
    """Return the beam whose translation of the validation set has the highest BLEU, the smallest of equal ones.

    BLEU by beam is returned beside it; none if there is one beam.
    """
    scores: dict[str, float] = {}
    if len(beams) == 1:
        return beams[0], scores
    for beam in beams:
        output = f"valid.beam{beam}.{run.data.target}"
        searching = dataclasses.replace(run, settings=dataclasses.replace(run.settings, beam=beam))
        searching.translate_file(f"beam-{beam}", run.source_of("valid"), output)
        scores[str(beam)] = round(results.score_of(bleu, _statistics(run, bleu, output, "valid")).score, 2)
    return max(sorted(beams), key=lambda beam: scores[str(beam)]), scores


def _statistics(run: Run, metric: Metric, output: str, name: str) -> FloatArray:
    references = run.settings.data_folder / f"{name}.{run.data.target}"
    return results.statistics_of(metric, run.settings.run / output, references)


def translated(run: Run, metrics: Mapping[str, Metric]) -> dict[str, Any]:
    """Return the scores of all test sets, in float32 and int8, and the statistics of their segments."""
    test_sets: dict[str, Any] = {}
    for name in run.data.test_sets:
        test_set: dict[str, Any] = {}
        statistics: dict[str, list[FloatArray]] = {metric: [] for metric in metrics}
        for precision, more in zip(results.PRECISIONS, ({}, {"dtype": "int8"}), strict=True):
            output, stage = f"{name}.{precision}.{run.data.target}", f"{stage_of('translate', name)}-{precision}"
            run.translate_file(stage, run.source_of(name), output, **more)
            test_set[precision] = {
                "cpu_seconds": _cpu_seconds(Record(run.settings.run / f"{stage}.json")),
                "sentences_per_second": decoding_speed(run.settings.run, stage),
            }
            for label, metric in metrics.items():
                rows = _statistics(run, metric, output, name)
                statistics[label].append(rows)
                test_set[precision][label] = results.score_of(metric, rows)
        segments = {label: results.packed(np.hstack(rows)) for label, rows in statistics.items()}
        test_sets[name] = test_set | {"segments": segments}
    return test_sets


def joined(run: Run, study: Study, bleu: Metric) -> dict[str, Any]:
    """Return BLEU, with its statistics, of the first test set with neighboring sentences joined, by their number."""
    test_set, scores = next(iter(study.test_sets)), {}
    for count in study.joined:
        name = f"{test_set}.join{count}"
        source, references = (run.settings.run / f"{name}.{side}" for side in (run.data.source, run.data.target))
        for path in (source, references):
            lines = read_lines(run.settings.data_folder / f"{test_set}{path.suffix}")
            write_lines(path, joined_lines(lines, count, drawn=False))
        output = f"{name}.float32.{run.data.target}"
        run.translate_file(stage_of("translate", name), source, output)
        rows = results.statistics_of(bleu, run.settings.run / output, references)
        scores[str(count)] = {"bleu": results.score_of(bleu, rows), "segments": results.packed(rows)}
    return scores


def _cpu_seconds(record: Record) -> float | None:
    """Return CPU seconds of a finished stage, of all attempts since it was finished before; None if one was killed."""
    *earlier, last = record.content["attempts"]
    since = itertools.takewhile(lambda attempt: attempt["outcome"] != "finished", reversed(earlier))
    seconds = [attempt.get("cpu_seconds") for attempt in (last, *since)]
    return None if None in seconds else round(sum(seconds), 1)


def model_of(settings: RunSettings) -> dict[str, int]:
    """Return the number of parameters with stored energies, and the bytes of the folder of posnet-export."""
    with tempfile.TemporaryDirectory(dir=settings.run) as place:
        out, model = Path(place, "model"), settings.run / MODEL
        run_or_exit(["posnet-export", str(model), "--data", str(settings.data_folder), "--out", str(out), "--quiet"])
        size = sum(path.stat().st_size for path in out.iterdir())
    return {"parameters": Model.of(settings.run / MODEL).parameters, "folder_bytes": size}


def training_of(run: Path) -> dict[str, Any]:
    """Return what the training of a run took and what became of it: its length, time, memory and curves."""
    log, content = run / "train.log", Record(run / "train.json").content
    valid, train = training.validations(log), {}
    finite = {number: value for number, value in valid.items() if math.isfinite(value)}
    for kind, values in training.records(log):
        if kind == "train_inner":
            train[int(values["num_updates"])] = values["nll_loss"]
    step = max(1, len(train) // 100)
    perplexity, best = training.best_validation(log)
    last = content["attempts"][-1]
    commands_run = [attempt["command"] for attempt in content["attempts"]]
    precisions = {next((name for name in ("bf16", "fp16") if f"--{name}" in words), "fp32") for words in commands_run}
    cpu_seconds = training.cpu_seconds_per_update(log) if "--cpu" in last["command"] else None
    if cpu_seconds and "--nproc-per-node" in last["command"]:  # the log has those of one process
        cpu_seconds *= int(training.value_of(last["command"], "--nproc-per-node"))
    return {
        "updates": max(valid),
        "best_update": best,
        "best_perplexity": perplexity,
        "seconds": content["seconds"],
        "cpu_seconds_per_update": cpu_seconds,
        "attempts": len(content["attempts"]),
        "precision": " and ".join(sorted(precisions)),
        "tokens_per_second": training.training_speed(log),
        "peak_memory_bytes": peak_memory(run),
        "validation": {"updates": list(finite), "perplexity": list(finite.values())},
        "loss": {"updates": list(train)[::step], "bits": list(train.values())[::step]},
        "surroundings": {name: last[name] for name in ("started", "commit", "versions", "machine")},
    }


def cost_of(run: Run, baseline: RunSettings) -> dict[str, Any]:
    """Return what an update costs, as :mod:`posnet_fairseq.studies.update_cost` measures it against a baseline."""
    out = run.settings.run / "cost-of-updates.json"
    # Batches are those of a CPU, wherever the run was trained; a longer training costs no more for each update.
    tokens = run.settings.max_tokens or int(hyperparameters(run.settings.size)["max_tokens"])
    trainings = []
    for settings in (run.settings, baseline):
        short = dataclasses.replace(settings, updates=update_cost.UPDATES, max_tokens=tokens)
        trainings.append(commands.training(short, run.data, run.device, run.work.report).arguments)
    command = update_cost.measuring(out, *trainings)
    run.stage("cost", "train.json", out.name, command, {})
    cost: dict[str, Any] = loads(out.read_text(encoding="utf-8"))
    return cost
