"""Runs of a study, each of which leaves a result."""

import dataclasses
import os
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posnet_fairseq.runs.command_stage import Work
from posnet_fairseq.runs.compare import check_options
from posnet_fairseq.runs.console import say
from posnet_fairseq.runs.dataset import TranslationData
from posnet_fairseq.runs.devices import find_device, shares
from posnet_fairseq.runs.jobs import RunJob, do_all
from posnet_fairseq.runs.parsers import choose, seed_numbers, switch, whole_number
from posnet_fairseq.runs.run import prepare_data, run
from posnet_fairseq.runs.run_settings import RunSettings
from posnet_fairseq.runs.settings import Settings, refuse, setting
from posnet_fairseq.shared.errors import UsageError, last_error
from posnet_fairseq.shared.files import check_folder
from posnet_fairseq.shared.processes import ending_with_this
from posnet_fairseq.shared.progress import shown
from posnet_fairseq.studies import measuring, results
from posnet_fairseq.studies.metrics import metrics_of
from posnet_fairseq.studies.protocol import Study, known_studies, read_study

STAGES = ("train", "average", "precompute")


def _study(text: str) -> str:
    name, *others = text.split("\0")
    if others:
        raise ValueError(f"{name} {' '.join(others)}: name one study.")
    return name


def _folder(text: str) -> Path:
    return Path(text).absolute()


@dataclass(frozen=True, kw_only=True)
class StudySettings(Settings):
    """Settings of a study: which of its runs are made, and where."""

    study: str = setting(", ".join(known_studies()), "", _study, positional="*", metavar="STUDY")
    only: str = setting("systems of the study between spaces or commas (default: all)", "", metavar="SYSTEMS")
    seed: tuple[int, ...] = setting(
        "seeds between spaces or commas (default: all that the protocol has)", (), seed_numbers, metavar="SEEDS"
    )
    jobs: int = setting("runs side by side, on equal shares of the machine", 1, whole_number, metavar="N")
    data: Path | None = setting("folder of the dataset (default: data/DATASET)", parse=_folder, metavar="FOLDER")
    runs: Path | None = setting("folder of runs (default: runs/STUDY)", parse=_folder, metavar="FOLDER")
    results: Path | None = setting("folder of results (default: results/STUDY)", parse=_folder, metavar="FOLDER")
    dry_run: bool = setting("print the commands instead of running them", False, switch)

    def check(self) -> None:
        """Refuse a call without a study."""
        if not self.study:
            raise UsageError(f"no study is named. Choose one of {', '.join(known_studies())}.")

    @property
    def results_folder(self) -> Path:
        """The folder of results."""
        return self.results or Path.cwd() / "results" / self.study


@dataclass(frozen=True)
class StudyJob(RunJob):
    """A run of a study, as a job beside others."""

    words: tuple[str, ...] = ()

    def do(self, work: Work, gpus: int | None) -> None:
        """Do it in a process of its own, whose CPU time is measured."""
        with subprocess.Popen(
            self.words,
            env=os.environ | work.environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            preexec_fn=ending_with_this(),
        ) as process:
            watch = threading.Thread(target=_end_with, args=(process, work.stopped), daemon=True)
            watch.start()
            said = [""]
            for line in map(str.rstrip, process.stderr or ()):
                said.append(line)
                work.report.say(line)
        if process.returncode:
            raise UsageError(last_error("\n".join(said)) or said[-1] or f"exit code {process.returncode}")


def _end_with(process: "subprocess.Popen[str]", stopped: threading.Event) -> None:
    """End a process when its work is stopped."""
    while process.poll() is None:
        if stopped.wait(0.5):
            process.terminate()
            return


def run_study(settings: StudySettings) -> None:
    """Make the runs that have no result yet."""
    study = read_study(settings.study)
    jobs = [
        StudyJob(system, _run_settings(study, system, seed, settings), STAGES, _words(system, seed, settings))
        for system, seed in _chosen(study, settings)
    ]
    todo = [job for job in jobs if not _has_result(study, job, settings)]
    for job in jobs:
        if job not in todo:
            say(f"{job.run.name} has a result in {shown(settings.results_folder)}")
    if not todo:
        return
    check_folder(settings.results_folder, "--results")
    check_options(todo)
    prepare_data(todo[0].settings)
    _refuse_other_data(study, todo[0].settings, settings)
    if len(todo) == 1:
        _make(study, todo[0], settings)
        return
    parts = shares(settings.jobs, todo[0].settings)
    do_all(todo, parts)


def _chosen(study: Study, settings: StudySettings) -> list[tuple[str, int]]:
    """Return systems and seeds, seed by seed: all systems can be compared as soon as the first is done.

    A seed that is asked for by number is made of every system that is asked for, also beyond the protocol's.
    """
    names = settings.only.replace(",", " ").split() or list(study.systems)
    for name in names:
        try:
            choose(name, list(study.systems))
        except ValueError as error:
            refuse("only", name, str(error))
    if settings.seed and settings.only:
        return [(name, seed) for seed in settings.seed for name in names]
    seeds = settings.seed or sorted({seed for name in names for seed in study.systems[name].seeds})
    return [(name, seed) for seed in seeds for name in names if seed in study.systems[name].seeds]


def _run_settings(study: Study, system: str, seed: int, settings: StudySettings) -> RunSettings:
    its = study.systems[system]
    texts = {
        **study.settings,
        **{"mixer": its.mixer, "name": system, "options": its.options, "seed": str(seed)},
        "runs": str(settings.runs or Path.cwd() / "runs" / study.name),
        "data": str(settings.data or ""),
        "dry_run": "1" if settings.dry_run else "0",
    }
    return dataclasses.replace(RunSettings.parsed(texts), stages=STAGES)


def _words(system: str, seed: int, settings: StudySettings) -> tuple[str, ...]:
    texts = settings.texts() | {"only": system, "seed": str(seed), "jobs": "1"}
    switches = ["--dry-run"] if texts.pop("dry_run", "") else []
    flags = (f"--{name}={text}" for name, text in texts.items())
    return ("posnet-run", "study", settings.study, *flags, *switches)


def _has_result(study: Study, job: StudyJob, settings: StudySettings) -> bool:
    """Return whether a run's result is there."""
    path = results.path_of(settings.results_folder, job.system, job.settings.seed)
    if not path.exists():
        return False
    before, now = results.read(path, study).settings, _protocol(study, job)
    different = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    if different:
        raise UsageError(
            f"{shown(path)} was made under another protocol ({', '.join(different)}). Remove it to make the run again, "
            f"or give another folder (--results)."
        )
    return True


def _refuse_other_data(study: Study, run_settings: RunSettings, settings: StudySettings) -> None:
    """Refuse data that the results in the folder were not made with, before hours of training."""
    folder = settings.results_folder
    data = TranslationData.read(run_settings.data_folder, settings.dry_run)
    if not data.exists or not any(folder.glob("*_s*.json")):
        return
    (first, *_), *_ = results.read_all(folder, study).values()
    if first.data.key != data.key:
        raise UsageError(
            f"the results in {shown(folder)} were made with other data than that in {shown(run_settings.data_folder)}, "
            f"so that new ones cannot be compared with them. Give another folder (--results)."
        )


def _protocol(study: Study, job: StudyJob) -> dict[str, Any]:
    """Return what the result of a run depends on, by name."""
    left_out = (
        *("runs", "data", "dry_run", "name", "seed", "metrics", "tensorboard"),
        *("cpus", "gpus", "nodes", "master_port", "max_tokens"),
    )
    texts = {name: text for name, text in job.settings.texts().items() if name not in left_out}
    return texts | {"beams": list(study.beams)}


def _make(study: Study, job: StudyJob, settings: StudySettings) -> None:
    run(job.settings)
    if settings.dry_run:
        return
    data = TranslationData.read(job.settings.data_folder)
    device = find_device(job.settings)
    metrics = metrics_of(data.target, study.literature, data.lowercase)
    beam, tried = measuring.choose_beam(job.settings, data, device, study.beams, metrics["bleu"])
    searching = dataclasses.replace(job.settings, beam=beam)
    baseline = _run_settings(study, study.baselines[0], job.settings.seed, settings)
    path = results.path_of(settings.results_folder, job.system, job.settings.seed)
    result: dict[str, Any] = {
        **{"study": study.name, "system": job.system, "seed": job.settings.seed},
        "settings": _protocol(study, job),
        "data": {"key": data.key, "source": data.source, "target": data.target},
        "search": {"beam": beam, "validation_bleu": tried},
        "training": measuring.training_of(job.run) | {"cost": measuring.cost_of(job.settings, baseline, data, device)},
        "model": measuring.model_of(searching),
        "test_sets": measuring.translated(searching, data, device, metrics),
    }
    results.write(path, result)
    scores = ", ".join(
        f"{name}: {found['float32']['bleu'].score:.1f} BLEU" for name, found in result["test_sets"].items()
    )
    say(f"{shown(path)}: {scores}")
