"""A run: from a dataset to a scored translation, in stages.

Each stage is done once, leaves a log and a record in the run's folder, and goes on where it was when the run is started
again.
"""

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from posnet_data_prep.datasets import DATASETS
from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import MetricOptions
from posnet_eval.report.wording import whereabouts
from posnet_fairseq.runs import commands
from posnet_fairseq.runs.command_stage import CommandStage, Work, do, last_attempt
from posnet_fairseq.runs.devices import Device, find_device
from posnet_fairseq.runs.earlier_records import table_of_scores
from posnet_fairseq.runs.run_settings import RunSettings, TrainingSettings, TranslationData
from posnet_fairseq.runs.training import GROWING, train
from posnet_fairseq.shared.errors import UsageError, counted, flag, option, visible
from posnet_fairseq.shared.processes import cores, elsewhere, run_attached
from posnet_fairseq.shared.progress import shown
from posnet_fairseq.shared.records import Record, digest
from posnet_fairseq.text.card import CARD, DatasetCard


def run_stages(settings: RunSettings, work: Work | None = None) -> bool:
    """Do the stages that are asked for, beside other runs if ``work`` is given; return whether all were done before."""
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
    were_done = []
    for stage in settings.stages:
        if stage == "prepare":
            prepare_data([settings])
            continue
        data = TranslationData.read(folder, settings.dry_run)
        were_done.append(getattr(Run(settings, data, device, work), stage)())
        if stage == "train" and settings.machine:
            break  # the first machine does the others
    return all(were_done)


@dataclass(frozen=True)
class Run:
    """A run on a device, and its stages after the data are there. They return whether they were done before."""

    settings: RunSettings
    data: TranslationData
    device: Device
    work: Work

    def stage(
        self,
        name: str,
        source: str,
        made: str,
        command: Sequence[object],
        depends: Mapping[str, Any],
        task: Callable[[], Sequence[str]] | None = None,
        texts: Sequence[Path] = (),
        remedy: str = "",
    ) -> bool:
        """Make a file of the run's folder of another one by a command, or by a task that does the same.

        The outcome depends on settings, the data and files of text. ``remedy``: what to do if settings have changed.
        """
        words, folder = list(map(str, command)), self.settings.run
        if self.settings.dry_run:
            show(words)
            return False
        settings = {**depends, "dataset": self.data.key}

        def refuse_missing() -> None:
            if not (folder / source).exists():
                earlier = {"train.json": "train", "averaged.pt": "average", "precomputed.pt": "precompute"}
                needed = earlier.get(source, "translate")
                raise UsageError(f"{shown(folder)}: there is no {source} yet. Run the stage {needed} first.")

        stage = CommandStage(
            *(folder, name, words, folder / made, folder / source, settings, remedy),
            prepare=refuse_missing,
            task=task,
            texts=texts,
        )
        return do(stage, self.work)

    def train(self) -> bool:
        """Train, or help the first machine, which keeps the record."""
        settings, work = self.settings, self.work
        training = commands.training(settings, self.data, self.device, work.report)
        if settings.dry_run or settings.machine:
            show(training.command)
        if settings.dry_run:
            return False
        stage = training_stage(settings, self.data)
        if not settings.machine:
            return train(stage, training, settings.average, work)
        if was_done := stage.is_done():
            say(f"{shown(settings.run)}: train is done; the first machine continues without this one")
        else:
            run_or_exit(training.command, work.environment)
        return was_done

    def average(self) -> bool:
        """Average checkpoints of the training, and record how to search."""
        settings, out = self.settings, self.settings.run / "averaged.pt"
        folder = settings.run / "checkpoints"
        command = ["posnet-average", folder, "--num", settings.average, "--out", out, *self._search, *settings.plugin]

        def task() -> Sequence[str]:
            from posnet_fairseq.inference.averaging import write_average

            self._limit_threads()
            lengths = {"max_len_a": float(settings.max_len_a), "max_len_b": settings.max_len_b}
            search = {"beam": settings.beam, "lenpen": float(settings.lenpen), **lengths}
            notes, lines = write_average(folder, settings.average, out, search, self.work.refuse_stopped)
            return [*notes, *lines]

        return self.stage("average", "train.json", out.name, command, settings.recorded("average"), task)

    def precompute(self) -> bool:
        """Store the energies that depend on positions only."""
        path, out = (self.settings.run / name for name in ("averaged.pt", "precomputed.pt"))
        command = ["posnet-precompute", path, "--out", out, "--or-copy", *self.settings.plugin]

        def task() -> Sequence[str]:
            from posnet_fairseq.inference.precomputing import write_precomputed

            self._limit_threads()
            self.work.refuse_stopped()
            return write_precomputed(str(path), str(out), or_copy=True)

        return self.stage("precompute", path.name, out.name, command, {}, task)

    def _limit_threads(self) -> None:
        """Set the number of threads that torch uses in this thread to that of the run's commands."""
        import torch

        threads = (os.environ | self.work.environment).get("OMP_NUM_THREADS", "").partition(",")[0]  # of levels
        if threads.isdecimal() and int(threads):
            torch.set_num_threads(int(threads))

    def translate(self) -> bool:
        """Translate all test sets, with the settings of the search that the model has recorded."""
        if not self.settings.dry_run:
            self._refuse_other_search()
        were_done = []
        for name in self.data.test_sets:
            output = f"{name}.{self.data.target}"
            towards = {"to": self.data.languages(name)[1]} if name in self.data.directions else {}
            were_done.append(self.translate_file(stage_of("translate", name), self.source_of(name), output, **towards))
        return all(were_done)

    def _refuse_other_search(self) -> None:
        """Refuse settings of the search with which users of the model would not get these translations."""
        record, now = Record(self.settings.run / "average.json"), self.settings.recorded("translate")
        command: list[str] = next((attempt["command"] for attempt in record.content["attempts"][-1:]), [])
        record.content["settings"] = {option: value for option, value in pairwise(command) if option in now} or now
        if different := "; ".join(record.differences(now)):
            raise UsageError(
                f"{shown(self.settings.run)}: average has recorded another search ({different}). {self._again}"
            )

    @property
    def _again(self) -> str:
        # A model records how to search, so its average is made again first.
        return f"To do it again, remove {shown(self.settings.run / 'average')}.json."

    def source_of(self, name: str) -> Path:
        """Return the file of the source text of a set of the data."""
        return self.settings.data_folder / f"{name}.{self.data.source}"

    def translate_file(self, stage: str, source: Path, output: str, **options: str) -> bool:
        """Translate a file into a file of the run's folder, with further options of posnet-translate."""
        settings, processes = self.settings, self.device.processes
        command = [
            *("posnet-translate", settings.run / "precomputed.pt", "--data", settings.data_folder),
            *("--input", source, "--output", settings.run / output),
            *(*self._search, "--on-long", "truncate", *self.device.option),
            *(("--processes", processes) if processes > 1 else ()),
            *(word for option, value in options.items() for word in (flag(option), value)),
            *settings.plugin,
        ]
        depends = settings.recorded("translate") | {flag(option): value for option, value in options.items()}
        return self.stage(stage, "precomputed.pt", output, command, depends, texts=[source], remedy=self._again)

    @property
    def _search(self) -> Sequence[object]:
        settings = self.settings
        lengths = ("--max-len-a", settings.max_len_a, "--max-len-b", settings.max_len_b)
        return "--beam", settings.beam, "--lenpen", settings.lenpen, *lengths

    def score(self) -> bool:
        """Score all translations, then print what posnet-score has printed, when all are done: perhaps nobody reads."""
        settings, data = self.settings, self.data
        were_done = []
        for name in data.test_sets:
            translation = f"{name}.{data.target}"
            texts = self.source_of(name), settings.data_folder / translation
            command = [
                *("posnet-score", "--source", texts[0], "--reference", texts[1]),
                *("--language-pair", "-".join(data.languages(name))),
                *("--system", f"{settings.system}={settings.run / translation}"),
                *("--metrics", ",".join(settings.metrics), "--out", settings.run / stage_of("report", name), "--quiet"),
                *(*self.device.option, *(["--lowercase"] * data.lowercase)),
            ]
            made = f"{stage_of('report', name)}/report.html"
            depends = settings.recorded("score")
            were_done.append(self.stage(stage_of("score", name), translation, made, command, depends, texts=texts))
        for name in data.test_sets if not settings.dry_run else ():
            stage = settings.run / stage_of("score", name)
            if Path(f"{stage}.log").exists():  # else somebody has removed it; the report remains
                print(table_of_scores(last_attempt(f"{stage}.log"), name), end="")
            result = Record(f"{stage}.json").content["attempts"][-1].get("result", {})  # none in earlier versions
            print(whereabouts(settings.run / stage_of("report", name), result.get("remarks_left", 0)), flush=True)
        return all(were_done)


def training_stage(settings: RunSettings, data: TranslationData) -> CommandStage:
    """Return the stage of a run's training, without its command, which depends on the device."""
    depends = settings.recorded("train") | {"dataset": data.key}
    if settings.init_from:
        depends["weights at the beginning"] = digest(settings.init_from)
    remedy = "Give another folder (--runs), or another name where you name the run, or remove that folder."
    return CommandStage(settings.run, "train", [], settings=depends, remedy=remedy, growing=GROWING)


def is_trained(settings: RunSettings) -> bool:
    """Return whether nothing is left to do for the training of a run; not if its record is damaged or differs."""
    with contextlib.suppress(UsageError, FileNotFoundError):  # its stage says so
        return training_stage(settings, TranslationData.read(settings.data_folder, dry_run=True)).is_done()
    return False


def stage_of(stage: str, test_set: str) -> str:
    """Return the name of a stage, or of its folder, for a test set: bare for the first."""
    return stage if test_set == "test" else f"{stage}-{test_set}"


def check_metrics(settings: TrainingSettings) -> None:
    """Refuse metrics whose packages, tokenizers or models are missing before days of training, not after."""
    data = TranslationData.read(settings.data_folder, dry_run=True)
    for language in {data.languages(test_set)[1] for test_set in data.test_sets}:
        for name in settings.metrics:
            get_metric(name, MetricOptions(language)).fetch(download=not settings.dry_run)


def check_trainings(runs: Sequence[RunSettings]) -> Mapping[str, Any]:
    """Refuse options that fairseq-train does not understand before hours of work; return what it makes of the others.

    That is by system, see :func:`posnet_fairseq.runs.before_training.check_trainings`.
    """
    from posnet_fairseq.runs import before_training  # imports torch

    device, data = find_device(runs[0]), TranslationData.read(runs[0].data_folder, dry_run=True)
    placed = [str(runs[0].data_folder), *commands.placed(device, device.processes * runs[0].nodes)]
    arguments = {each.system: [*placed, *commands.options_of(each, data)] for each in runs}
    return elsewhere(before_training.check_trainings, arguments)


def prepare_data(runs: Sequence[RunSettings]) -> None:
    """Make the dataset of runs, unless it is there."""
    settings = runs[0]
    folder = settings.data_folder
    if (folder / CARD).exists():
        made = DatasetCard.read(folder).dataset
        if settings.dataset in DATASETS and made and not f"{made}.".startswith(f"{settings.dataset}."):
            raise UsageError(
                f"{folder} has the dataset {made}, not {settings.dataset}. Give another folder (--data), or run "
                "posnet-run corpus on it."
            )
        say(f"dataset {folder} is ready")
    elif not settings.dataset:
        raise UsageError(f"{folder}: posnet-prepare has not made this folder (it has no dataset.json). Check the path.")
    elif settings.dry_run:
        show(commands.prepare(settings.dataset, folder))
    else:
        check_trainings(runs)
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
