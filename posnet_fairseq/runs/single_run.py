"""A run: from a dataset to a scored translation, in stages.

Each stage is done once, leaves a log and a record in the run's folder, and goes on where it was when the run is started
again.
"""

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import MetricOptions
from posnet_fairseq.runs import commands
from posnet_fairseq.runs.command_stage import CommandStage, Work, do, last_attempt, settings_of
from posnet_fairseq.runs.devices import Device, find_device
from posnet_fairseq.runs.run_settings import RunSettings, TrainingSettings, TranslationData, short
from posnet_fairseq.runs.training import LENGTH, train
from posnet_fairseq.shared.errors import UsageError, counted, option, visible
from posnet_fairseq.shared.processes import cores, elsewhere, run_attached
from posnet_fairseq.shared.progress import shown
from posnet_fairseq.shared.records import Record, digest
from posnet_fairseq.text.card import CARD


def run(settings: RunSettings, work: Work | None = None) -> None:
    """Do the stages that are asked for, beside other runs if ``work`` is given."""
    if "score" in settings.stages:
        check_metrics(settings)
    alone, work = work is None, work or Work()
    device = find_device(settings)
    if alone and device.threads:
        os.environ.setdefault("OMP_NUM_THREADS", str(device.threads))
    if device.kind == "cpu" and device.processes > cores():
        cpus = option("cpus", device.processes)
        work.report.say(f"{cpus}: this machine has {counted(cores(), 'core')}, which the processes share")
    folder = settings.data_folder
    if "translate" in settings.stages and (folder / CARD).exists():  # refused before days of training, not after
        source = TranslationData.read(folder).source
        if not (folder / f"test.{source}").exists():
            raise UsageError(
                f"{folder} has no test set (test.{source}): make it with posnet-prepare corpus --test FILE FILE, or "
                "give posnet-run corpus the stages train average precompute."
            )
    for stage in settings.stages:
        if stage == "prepare":
            prepare_data(settings)
            continue
        data = TranslationData.read(folder, settings.dry_run)
        getattr(Run(settings, data, device, work), stage)()
        if stage == "train" and settings.machine:
            return  # the first machine does the others


@dataclass(frozen=True)
class Run:
    """A run on a device, and its stages after the data are there."""

    settings: RunSettings
    data: TranslationData
    device: Device
    work: Work

    def stage(
        self, name: str, source: str, made: str, command: Sequence[object], records: Sequence[object] = ()
    ) -> None:
        """Make a file of the run's folder of another one by a command.

        ``records`` are arguments of what the file only records: it need not be made again when they change.
        """
        whole, folder = [*map(str, command), *map(str, records)], self.settings.run
        if self.settings.dry_run:
            show(whole)
            return
        depends = settings_of(whole[: len(command)], {"dataset": self.data.key}, self._places)
        do(CommandStage(folder, name, whole, folder / made, folder / source, depends), self.work)

    @property
    def _places(self) -> Mapping[str, Path]:
        """Folders that may be moved."""
        settings = self.settings
        places = {"RUN": settings.run, "DATA": settings.data_folder, "posnet_fairseq": short(commands.USER_DIR)}
        return places | ({"USER_DIR": settings.user_dir} if settings.user_dir else {})

    def train(self) -> None:
        """Train, or help the first machine, which keeps the record."""
        settings, work = self.settings, self.work
        training = commands.training(settings, self.data, self.device, work.report)
        if settings.dry_run or settings.machine:
            show(training.command)
        if settings.dry_run:
            return
        if settings.machine:
            record = Record(settings.run / "train.json")
            if not record.finished or record.is_exceeded(LENGTH, settings.updates):
                run_or_exit(training.command, work.environment)
            else:
                say(f"{shown(settings.run)}: train is done; the first machine continues without this one")
            return
        more = {"tokens an update": str(settings.tokens), "dataset": self.data.key}
        if settings.init_from:
            more["weights at the beginning"] = digest(settings.init_from, "sha256")
        remedy = "Give another name (--name, or in the file of systems) or folder (--runs), or remove that folder."
        train(settings.run, training, settings.average, work, self._places, remedy, more)

    def average(self) -> None:
        """Average checkpoints of the training, and record how to search."""
        made = ("--num", self.settings.average, "--out", self.settings.run / "averaged.pt")
        command = ["posnet-average", self.settings.run / "checkpoints", *made, *self.settings.plugin]
        self.stage("average", "train.json", "averaged.pt", command, self._search)

    def precompute(self) -> None:
        """Store the energies that depend on positions only."""
        made = ("--out", self.settings.run / "precomputed.pt", "--or-copy")
        command = ["posnet-precompute", self.settings.run / "averaged.pt", *made, *self.settings.plugin]
        self.stage("precompute", "averaged.pt", "precomputed.pt", command)

    def translate(self) -> None:
        """Translate all test sets."""
        for name in self.data.test_sets:
            self.translate_set(stage_of("translate", name), name, f"{name}.{self.data.target}")

    def translate_set(self, stage: str, name: str, output: str, *options: str) -> None:
        """Translate a set of the data into a file of the run's folder."""
        settings, processes = self.settings, self.device.processes
        command = [
            *("posnet-translate", settings.run / "precomputed.pt", "--data", settings.data_folder),
            *("--input", settings.data_folder / f"{name}.{self.data.source}", "--output", settings.run / output),
            *(*self._search, "--on-long", "truncate", *self.device.option),
            *(("--processes", processes) if processes > 1 else ()),
            *(*options, *settings.plugin),
        ]
        self.stage(stage, "precomputed.pt", output, command)

    @property
    def _search(self) -> Sequence[object]:
        settings = self.settings
        lengths = ("--max-len-a", settings.max_len_a, "--max-len-b", settings.max_len_b)
        return "--beam", settings.beam, "--lenpen", settings.lenpen, *lengths

    def score(self) -> None:
        """Score all translations, then print what posnet-score has printed, when all are done: perhaps nobody reads."""
        settings, data = self.settings, self.data
        reports = {name: settings.run / stage_of("report", name) for name in data.test_sets}
        for name, report in reports.items():
            translation = f"{name}.{data.target}"
            command = [
                *("posnet-score", "--source", settings.data_folder / f"{name}.{data.source}"),
                *("--reference", settings.data_folder / translation),
                *("--language-pair", f"{data.source}-{data.target}"),
                *("--system", f"{settings.system}={settings.run / translation}"),
                *("--metrics", ",".join(settings.metrics), "--out", report),
                *(*self.device.option, *(["--lowercase"] * data.lowercase)),
            ]
            self.stage(stage_of("score", name), translation, f"{report.name}/report.html", command)
        for name, report in reports.items() if not settings.dry_run else ():
            printed = last_attempt(settings.run / f"{stage_of('score', name)}.log")
            table = printed[max(0, printed.find(f"{name}, ")) :]  # from its title on
            place = f"report: {shown(report)}".replace("\\", r"\\")  # the folder may have been moved
            print(re.sub(r"report: .*(?=/report\.html)", place, table), end="", flush=True)


def stage_of(stage: str, test_set: str) -> str:
    """Return the name of a stage, or of its folder, for a test set: bare for the first."""
    return stage if test_set == "test" else f"{stage}-{test_set}"


def check_metrics(settings: TrainingSettings) -> None:
    """Refuse metrics whose packages, tokenizers or models are missing before days of training, not after."""
    options = MetricOptions(TranslationData.read(settings.data_folder, dry_run=True).target)
    for name in settings.metrics:
        get_metric(name, options).fetch(download=not settings.dry_run)


def check_options(runs: Sequence[RunSettings]) -> None:
    """Refuse options that fairseq-train does not understand before hours of work, not after."""
    from posnet_fairseq.runs.before_training import try_options  # imports torch

    elsewhere(try_options, {each.system: commands.tried(each) for each in runs})


def prepare_data(settings: RunSettings) -> None:
    """Make the dataset, unless it is there."""
    folder = settings.data_folder
    if (folder / CARD).exists():
        say(f"dataset {folder} is ready")
    elif not settings.dataset:
        raise UsageError(f"{folder}: posnet-prepare has not made this folder (it has no dataset.json). Check the path.")
    elif settings.dry_run:
        show(commands.prepare(settings.dataset, folder))
    else:
        check_options([settings])
        settings.runs_folder.mkdir(parents=True, exist_ok=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        run_or_exit(commands.prepare(settings.dataset, folder))


def run_or_exit(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a command that speaks for itself; end with its exit code if it fails."""
    if code := run_attached(command, environment):
        sys.exit(code if code > 0 else 128 - code)


def say(text: str) -> None:
    """Print a line."""
    print(f"{Path(sys.argv[0]).name}: {visible(shown(text))}\n", end="", file=sys.stderr, flush=True)


def show(command: Sequence[object]) -> None:
    """Print a command as it could be typed, in one piece among the lines of other processes."""
    print(shlex.join(map(str, command)) + "\n", end="", flush=True)
