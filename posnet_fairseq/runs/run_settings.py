"""The settings of a run: what is trained, on what, and where."""

import os
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from posnet_eval.metrics import METRICS
from posnet_fairseq.runs.settings import Settings, recipe, root, setting
from posnet_fairseq.runs.values import (
    betas,
    choose,
    fraction,
    length,
    nearest,
    number,
    one_of,
    port,
    rank,
    rate,
    run_name,
    switch,
    whole_number,
)  # fmt: skip
from posnet_fairseq.shared.disk import existing
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.output_paths import check_for_fairseq
from posnet_fairseq.shared.schema import read_yaml
from posnet_fairseq.transformer.sizes import SIZES

STAGES = ("prepare", "train", "average", "precompute", "translate", "score")
# Options of fairseq-train that follow from settings.
_OWN = re.compile(
    r"--(arch|seed|max-tokens|batch-size|update-freq|max-update|patience|save-|no-save"
    r"|required-batch-size-multiple|finetune-from-model|distributed-|log-).*|-a"
)


@cache
def known_architectures() -> tuple[str, ...]:
    """The names of mixers in architectures, as their source files have them: importing them takes seconds."""
    files = sorted((Path(__file__).parent.parent / "mixers").glob("*.py"))
    pattern = re.compile(r'^@register_mixer\((?:.*arch=)?"([a-z0-9_]+)"', re.MULTILINE)
    return tuple(name for path in files for name in pattern.findall(path.read_text(encoding="utf-8")))


def known_datasets() -> tuple[str, ...]:
    """The names of datasets that posnet-prepare makes."""
    from posnet_data_prep.datasets import DATASETS

    return tuple(DATASETS)


def default_size(dataset: str) -> str:
    """The size of models that PosNet's paper trains on a dataset; tiny for small datasets that are not the paper's."""
    if dataset.startswith(("quickstart", "debian", "study")):
        return "tiny"
    return next((size for size in SIZES if dataset.startswith(size)), "base")


@cache
def hyperparameters(size: str) -> dict[str, str]:
    """The hyperparameters of a size, by name, as ``hyperparameters.yaml`` has them."""
    sizes = read_yaml(Path(__file__).with_name("hyperparameters.yaml"))
    return sizes["all"] | sizes[size]


def _mixer(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9_]+", text):
        raise ValueError("name one mixer (posnet-mixers lists them).")
    return choose(text, known_architectures())


def _folder(text: str) -> Path:
    return Path(os.path.abspath(text))  # what is relative is so to where the caller is


def _metrics(text: str) -> str:
    names = text.replace(",", " ").split()
    *others, last = METRICS
    for name in names or ["none"]:
        if name not in METRICS:
            raise ValueError(
                f"choose from {', '.join(others)} and {last}, with commas between them.{nearest(name, METRICS)}"
            )
    return text


def _stages(text: str) -> tuple[str, ...]:
    words = text.split("\0")
    for word in words:
        if word not in (*STAGES, "all"):
            raise ValueError(
                f"{word}: choose from {' '.join(STAGES)}, or all (the default).{nearest(word, (*STAGES, 'all'))}"
            )
    return STAGES if "all" in words else tuple(stage for stage in STAGES if stage in words)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """Settings of single runs and of comparisons. The size gives the hyperparameters that are not given."""

    dataset: str | None = setting("dataset of posnet-prepare, such as wmt14.en-de", metavar="NAME")
    data: Path | None = setting("folder of a dataset (default: data/DATASET)", parse=_folder, metavar="FOLDER")
    runs: Path | None = setting("folder of runs (default: runs)", parse=_folder, metavar="FOLDER")
    size: str = setting("size of the models: " + ", ".join(SIZES), "base", one_of(*SIZES))
    options: str = setting("more options of fairseq-train, as in --options='--gate none'", "")
    gpus: int | None = setting("GPUs of every machine (default: all)", parse=whole_number, metavar="N")
    cpus: int | None = setting("processes on CPUs, instead of GPUs", parse=whole_number, metavar="N")
    nodes: int = setting("machines", 1, whole_number, metavar="N")
    node_rank: int | None = setting("number of this machine, from 0", parse=rank, metavar="N")
    master_addr: str | None = setting("host name of the first machine", metavar="HOST")
    master_port: int = setting("port of the first machine", 29500, port, metavar="PORT")
    precision: str | None = setting(
        "bf16, fp16 or fp32 (default: bf16 on GPUs that have it, else fp32)", parse=one_of("bf16", "fp16", "fp32")
    )
    tensorboard: bool = setting("write curves for TensorBoard into the run's folder", False, switch)
    dry_run: bool = setting("print the commands instead of running them", False, switch)

    tokens: int = setting("tokens of an update, over all batches and processes", parse=whole_number, metavar="N")
    max_tokens: int | None = setting(
        "tokens of one batch, at most (default on GPUs: what their memory holds)", parse=whole_number, metavar="N"
    )
    lr: str = setting("peak of the learning rate", parse=rate)
    warmup: int = setting("updates until the peak", parse=whole_number, metavar="N")
    updates: int = setting("updates of the training", parse=whole_number, metavar="N")
    interval: int = setting("updates between checkpoints", parse=whole_number, metavar="N")
    patience: int | None = setting(
        "end the training when so many validations in a row have found no better perplexity (default: never)",
        parse=whole_number,
        metavar="N",
    )
    average: int = setting("checkpoints that are averaged", parse=whole_number, metavar="N")
    label_smoothing: str = setting("of the loss", parse=fraction, metavar="P")
    adam_betas: str = setting("of Adam, as '(0.9,0.98)'", parse=betas, metavar="BETAS")
    adam_eps: str = setting("of Adam", parse=number, metavar="EPS")
    max_positions: int = setting("tokens of a sentence, at most", parse=whole_number, metavar="N")
    beam: int = setting("hypotheses kept in beam search", parse=whole_number, metavar="N")
    lenpen: str = setting("exponent of the length by which log probabilities are divided", parse=number, metavar="X")
    max_len_a: str = setting("translations have a·M + b tokens at most: a", parse=number, metavar="A")
    max_len_b: int = setting("and b", parse=length, metavar="B")
    metrics: str = setting("of posnet-score: " + ", ".join(METRICS), parse=_metrics)

    @classmethod
    def completed(cls, texts: dict[str, str]) -> dict[str, str]:
        """The texts with the hyperparameters of the size, but for the batch, which depends on the device."""
        size = texts.get("size", "base")
        defaults = hyperparameters(size) if size in SIZES else {}
        return {name: text for name, text in defaults.items() if name != "max_tokens"} | texts

    def check(self) -> None:
        """Refuse settings that do not fit together, and places where data and runs cannot be."""
        if not (self.dataset or self.data):
            said = "set DATASET=quickstart.en-de, or DATA=FOLDER" if recipe() else (
                "give --dataset quickstart.en-de, or --data FOLDER"
            )  # fmt: skip
            raise UsageError(f"no data is named: {said}.")
        if self.gpus and self.cpus:
            raise UsageError(f"{self.given('gpus', self.gpus)} and {self.given('cpus', self.cpus)}: give one of them.")
        if self.machine >= self.nodes:
            self.refuse(
                "node_rank",
                self.node_rank,
                f"with {self.given('nodes', self.nodes)}, give 0 to {self.nodes - 1}, or leave it out for one machine.",
            )
        made = self.updates // self.interval
        if made < self.average:
            self.refuse(
                "average",
                self.average,
                f"{self.updates} updates with a checkpoint every {self.interval} make {made}. Set a smaller "
                f"{self.called('average')} or {self.called('interval')}.",
            )
        if self.patience is not None and self.patience < self.average - 1:
            self.refuse(
                "patience",
                self.patience,
                f"the best checkpoint and those that follow it are averaged, {self.average} in all, so the training "
                f"goes on for {self.average - 1} validations at least. Give that or more, or a smaller "
                f"{self.called('average')}.",
            )
        self._check_options()
        self._check_data()
        self.check_writable(self._runs())

    def _check_options(self) -> None:
        if re.search(r"[\"'\\]", self.options):
            self.refuse("options", self.options, "quotes are not understood there. Give words between spaces.")
        for word in self.options.split():
            if _OWN.fullmatch(word):
                names = (
                    *("mixer", "size", "seed", "tokens", "max_tokens", "updates", "interval", "patience", "runs"),
                    "init_from",
                )
                called = ", ".join(name.upper() if recipe() else f"--{name.replace('_', '-')}" for name in names)
                self.refuse(
                    "options",
                    self.options,
                    f"{word} has {'a variable' if recipe() else 'an option'} of its own ({called}) or is the recipe's "
                    "own.",
                )

    def _check_data(self) -> None:
        data = self._data()
        if data.exists() and not data.is_dir():
            raise UsageError(f"{self.given('data', data)} is a file: give the folder of a dataset.")
        if self.dataset:
            if not (data / "dataset.json").exists():
                try:
                    choose(self.dataset, known_datasets())
                except ValueError as error:
                    self.refuse("dataset", self.dataset, str(error))
            if "/" in self.dataset:
                self.refuse(
                    "dataset",
                    self.dataset,
                    f"give the name of a dataset; a folder is given by {self.given('data', 'FOLDER')}.",
                )
        is_made = bool(self.dataset) and not (data / "dataset.json").exists()
        for name in ("data", "runs", "init_from"):
            if path := getattr(self, name, None):
                check_for_fairseq(short(path), self.given(name, path), name == "data" and is_made)

    def _data(self) -> Path:
        return self.data or _folder(f"{root()}/data/{self.dataset}")

    def _runs(self) -> Path:
        return (self.runs or _folder(f"{root()}/runs")) / self._data().name

    @cached_property
    def data_folder(self) -> Path:
        """The dataset's folder, relative to :func:`root` if it lies there, so that all machines name it alike."""
        return short(self._data())

    @cached_property
    def runs_folder(self) -> Path:
        """The folder of runs on the dataset, relative to :func:`root` if it lies there."""
        return short(self._runs())

    def check_writable(self, run: Path) -> None:
        """Refuse a folder of a run, there or not, that cannot be written to.

        Raises:
            UsageError: it, or the nearest folder above that is there, is a file or write-protected.
        """
        place = existing(run)
        if not self.dry_run and not (place.is_dir() and os.access(place, os.W_OK)):
            runs = self.runs or root() / "runs"
            raise UsageError(f"{self.given('runs', runs)}: {place} is no folder that can be written to.")

    @property
    def machine(self) -> int:
        """The number of this machine."""
        return self.node_rank or 0


def short(path: Path) -> Path:
    """The path, relative to :func:`root` if it lies there."""
    return path.relative_to(root()) if path.is_relative_to(root()) else path


@dataclass(frozen=True, kw_only=True)
class RunSettings(TrainingSettings):
    """One system with one seed."""

    stages: tuple[str, ...] = setting(
        "of " + ", ".join(STAGES) + " (default: all)", STAGES, _stages, positional="*", metavar="STAGE"
    )
    mixer: str = setting("mixer, as in architectures (posnet-mixers lists them)", "rposnet", _mixer)
    seed: int = setting("of everything random", 1, whole_number, metavar="N")
    name: str | None = setting("of the run (default: the mixer's)", parse=run_name)
    init_from: Path | None = setting(
        "checkpoint of the same architecture and vocabulary, as averaged.pt, whose weights the training begins with: "
        "fine-tuning",
        parse=_folder,
        metavar="CHECKPOINT",
    )

    def check(self) -> None:
        """Refuse settings that do not fit together, and places where data and runs cannot be."""
        super().check()
        self.check_writable(Path(root(), self.run))
        if self.init_from and not (self.init_from.is_file() or self.dry_run):
            self.refuse("init_from", self.init_from, "there is no such checkpoint. Check the path.")

    @cached_property
    def system(self) -> str:
        """The name of the system."""
        return self.name or self.mixer

    @cached_property
    def run(self) -> Path:
        """The run's folder."""
        return self.runs_folder / f"{self.system}_{self.size}_s{self.seed}"

    @property
    def arch(self) -> str:
        """The architecture, as fairseq-train's ``--arch`` names it."""
        return f"{self.mixer}_{self.size}"
