"""The settings of a run: what is trained, on what, and where; and its dataset."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from posnet_data_prep.datasets import DATASETS
from posnet_eval.metrics import METRICS
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.runs import parsers
from posnet_fairseq.runs.settings import Settings, refuse, setting
from posnet_fairseq.shared.disk import existing
from posnet_fairseq.shared.errors import UsageError, flag, nearest, option
from posnet_fairseq.shared.output_paths import check_for_fairseq
from posnet_fairseq.shared.schema import read_yaml
from posnet_fairseq.shared.user_dir import import_user_dir
from posnet_fairseq.text.card import CARD, DatasetCard
from posnet_fairseq.text.pipeline import check_dictionary
from posnet_fairseq.transformer.sizes import SIZES

STAGES = ("prepare", "train", "average", "precompute", "translate", "score")
# Settings that set options of fairseq-train, and a pattern of options that --options may not have: these, those by
# which a training would end elsewhere or lack checkpoints to average, and those that decide what its data are, which
# the stages after it translate and score.
_GIVING = (
    *("mixer", "size", "seed", "tokens", "max_tokens", "updates", "interval", "patience", "stop_on"),
    *("dataset", "data", "runs", "init_from", "user_dir"),
)
_OWN = re.compile(
    r"--(arch|seed|max-tokens|max-sentences|batch-size|update-freq|max-update|max-epoch|patience|stop-min-lr"
    r"|stop-time-hours|save-|no-save|no-last-checkpoints|keep-interval-updates|keep-last-epochs|keep-best-checkpoints"
    r"|reset-(dataloader|lr-scheduler|meters|optimizer)|restore-file|continue-once|finetune-from-model"
    r"|checkpoint-suffix|write-checkpoints-asynchronously|disable-validation|valid-subset|validate-after-updates"
    r"|validate-interval(?!-)|(maximize-)?best-checkpoint-metric|required-batch-size-multiple|distributed-|log-"
    r"|user-dir|task|source-lang|target-lang|train-subset|combine-val|ignore-unused-valid-subsets|dataset-impl"
    r"|num-shards|shard-id).*|-[ast].*"
)

# Options in --options that say where and how fast a training computes, not what: a run may go on with others.
_FREE = {
    *("--cpu", "--bf16", "--fp16", "--ddp-backend", "--load-checkpoint-on-all-dp-ranks", "--num-workers", "--compile"),
    *("--tensorboard-logdir", "--wandb-project"),
}

# Settings that the training of a run depends on, and those that its translations do.
_of_training, _of_search = (partial(setting, stage=stage) for stage in ("train", "translate"))

# Settings that put mixers into places. Names of runs made of them are no longer than those that may be given.
_OF_PLACES = ("encoder_self_mixer", "decoder_self_mixer", "cross_mixer")
_LONGEST_NAME = 200


@cache
def hyperparameters(size: str) -> dict[str, str]:
    """Return the hyperparameters of a size, by name, as ``hyperparameters.yaml`` has them."""
    sizes = read_yaml(Path(__file__).with_name("hyperparameters.yaml"))
    return sizes["all"] | sizes[size]


def short(path: Path) -> Path:
    """Return the path, relative to the working directory if it lies there, so that all machines name it alike."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def by_name(options: str) -> dict[str, str]:
    """Return the values of options in a text, by name: "" of a switch, all words of an option that takes several."""
    values: dict[str, str] = {}
    name = None
    for word in options.split():
        if re.match(r"--?[A-Za-z]", word):
            name, _, values[name] = word.partition("=")
        elif name:
            values[name] = f"{values[name]} {word}".strip()
    return values


def _stages(text: str) -> tuple[str, ...]:
    words = parsers.several(parsers.one_of(*STAGES, "all"))(text)
    return STAGES if "all" in words else tuple(stage for stage in STAGES if stage in words)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """Settings of single runs and of comparisons. The size gives the hyperparameters that are not given."""

    dataset: str | None = setting("name of a dataset of posnet-prepare, such as wmt14.en-de", metavar="NAME")
    data: Path | None = setting("folder of a prepared dataset (default: data/DATASET)", parse=parsers.folder)
    runs: Path | None = setting("folder of runs (default: runs)", parse=parsers.folder)
    user_dir: Path | None = setting("folder with mixers of your own", parse=parsers.folder)
    size: str = _of_training("size of the model: " + ", ".join(SIZES), "base", parsers.one_of(*SIZES))
    options: str = _of_training("further options of fairseq-train, such as --options='--gate none'", "")
    gpus: int | None = setting("GPUs per machine (default: all)", parse=parsers.whole_number)
    cpus: int | None = setting("CPU processes, instead of GPUs", parse=parsers.whole_number)
    nodes: int = setting("number of machines", 1, parsers.whole_number)
    node_rank: int | None = setting("number of this machine, from 0", parse=parsers.integer(0, 9999), metavar="N")
    master_addr: str | None = setting("host name of the first machine", metavar="HOST")
    master_port: int = setting("port of the first machine", 29500, parsers.integer(1, 65535), metavar="PORT")
    precision: str | None = setting(
        "bf16, fp16 (GPUs only) or fp32 (default: bf16 on GPUs that have it, else fp32)", parse=parsers.precision
    )
    tensorboard: bool = setting("write curves for TensorBoard into the run's folder", False, parsers.switch)
    dry_run: bool = setting("print the commands instead of running them", False, parsers.switch)

    tokens: int = _of_training("tokens per update, over all batches and processes", parse=parsers.whole_number)
    max_tokens: int | None = setting("maximum tokens per batch (default: the size's)", parse=parsers.whole_number)
    lr: str = _of_training("peak learning rate", parse=parsers.rate)
    warmup: int = _of_training("updates until the peak learning rate", parse=parsers.whole_number)
    updates: int = _of_training("number of training updates", parse=parsers.whole_number)
    interval: int = _of_training("updates between checkpoints", parse=parsers.whole_number)
    patience: int | None = _of_training(
        "stop the training after N validations in a row without a better perplexity (default: never)",
        parse=parsers.whole_number,
    )
    stop_on: str | None = _of_training(
        "bleu: the best checkpoint and --patience go by BLEU of greedy translations of the validation set (default: by "
        "perplexity)",
        parse=parsers.one_of("bleu"),
        metavar="METRIC",
    )
    average: int = setting("number of checkpoints to average", parse=parsers.whole_number, stage="average")
    label_smoothing: str = _of_training("label smoothing of the loss", parse=parsers.fraction, metavar="P")
    adam_betas: str = _of_training("Adam's betas, such as '(0.9,0.98)'", parse=parsers.betas, metavar="BETAS")
    adam_eps: str = _of_training("Adam's epsilon", parse=parsers.number, metavar="EPS")
    max_positions: int = _of_training("maximum tokens per sentence", parse=parsers.whole_number)
    beam: int = _of_search("beam size", parse=parsers.whole_number)
    lenpen: str = _of_search(
        "length penalty: log probabilities are divided by the length to this power", parse=parsers.number, metavar="X"
    )
    max_len_a: str = _of_search(
        "a of the maximum length of a translation, a·M + b for M source tokens", parse=parsers.number, metavar="A"
    )
    max_len_b: int = _of_search("b of that length", parse=parsers.whole_number, metavar="B")
    metrics: tuple[str, ...] = setting(
        "metrics of posnet-score: " + ", ".join(METRICS), parse=parsers.several(parsers.one_of(*METRICS)), stage="score"
    )

    @classmethod
    def completed(cls, texts: dict[str, str]) -> dict[str, str]:
        """Return the texts with the hyperparameters of the size, but for the batch, which depends on the device."""
        size = texts.get("size", "base")
        defaults = hyperparameters(size) if size in SIZES else {}
        whole = {name: text for name, text in defaults.items() if name != "max_tokens"} | texts
        numbers = [whole.get(name, "") for name in ("updates", "average", "interval")]
        if "interval" not in texts and all(map(parsers.DIGITS.fullmatch, numbers)):
            updates, average, interval = map(int, numbers)  # a short training has the checkpoints to average
            whole["interval"] = str(max(1, min(interval, updates // max(1, average))))
        return whole

    def check(self) -> None:
        """Refuse settings that do not fit together, and places where data and runs cannot be."""
        if not (self.dataset or self.data):
            raise UsageError("no data is named: give --dataset quickstart.en-de, or --data FOLDER.")
        if self.gpus and self.cpus:
            refuse("gpus", self.gpus, f"give that or {option('cpus', self.cpus)}.")
        if self.machine >= self.nodes:
            allowed = f"with {option('nodes', self.nodes)}, give 0 to {self.nodes - 1}"
            refuse("node_rank", self.node_rank, f"{allowed}, or leave it out for one machine.")
        if (made := self.updates // self.interval) < self.average:
            made_by = f"{self.updates} updates with a checkpoint every {self.interval} make {made}"
            refuse("average", self.average, f"{made_by}. Set a smaller --average or --interval.")
        if self.patience is not None and self.patience < self.average - 1:
            refuse(
                "patience",
                self.patience,
                f"the best checkpoint and those that follow it are averaged, {self.average} in all, so the training "
                f"goes on for {self.average - 1} validations at least. Give that or more, or a smaller --average.",
            )
        # The model records them: what no search takes would end the run after its training.
        SearchSettings(self.beam, float(self.lenpen), float(self.max_len_a), self.max_len_b)
        if re.search(r"[\"'\\]", self.options):
            refuse("options", self.options, "quotes are not understood there. Give words between spaces.")
        for word in filter(_OWN.fullmatch, self.options.split()):
            instead = f"Use its own options ({', '.join(map(flag, _GIVING))}), or leave it out."
            refuse("options", self.options, f"the recipe sets {word}, or depends on it. {instead}")
        data = self._data()
        if data.exists() and not data.is_dir():
            refuse("data", data, "a file. Give the folder of a dataset.")
        is_there = (data / CARD).exists()
        if self.dataset and (not is_there or "/" in self.dataset) and self.dataset not in DATASETS:
            known = f"choose one of {' '.join(DATASETS)}, or give a folder by --data FOLDER"
            refuse("dataset", self.dataset, f"{known}.{nearest(self.dataset, DATASETS)}")
        for name in ("data", "runs", "init_from", "user_dir"):
            if path := getattr(self, name, None):
                check_for_fairseq(short(path), option(name, path), name == "data" and not is_there)
        place = existing(getattr(self, "run", self.runs_folder))
        if not self.dry_run and not (place.is_dir() and os.access(place, os.W_OK)):
            refuse("runs", self.runs or "runs", f"{place} is no folder that can be written to.")
        if self.user_dir:  # last, as it imports torch
            import_user_dir(self.user_dir)

    def _data(self) -> Path:
        return self.data or parsers.folder(f"data/{self.dataset}")

    @cached_property
    def data_folder(self) -> Path:
        """The dataset's folder, as :func:`short` names it."""
        return short(self._data())

    @cached_property
    def runs_folder(self) -> Path:
        """The folder of runs on the dataset, as :func:`short` names it."""
        return short((self.runs or parsers.folder("runs")) / self._data().name)

    @property
    def machine(self) -> int:
        """The number of this machine."""
        return self.node_rank or 0


def _mixer_setting(place: str) -> Any:
    about = f"mixer of {place}, if not that of the architecture, or one for each layer: lightconv,lightconv,attention"
    return _of_training(about, "", lambda text: ",".join(re.split(r"\s*,\s*|\s+", text.strip())), metavar="MIXERS")


@dataclass(frozen=True, kw_only=True)
class RunSettings(TrainingSettings):
    """One system with one seed."""

    stages: tuple[str, ...] = setting(
        "stages to run, of " + ", ".join(STAGES) + " (default: all)", STAGES, _stages, positional="*", metavar="STAGE"
    )
    mixer: str = _of_training("token mixer (default: rposnet); posnet-mixers lists them", "rposnet")
    encoder_self_mixer: str = _mixer_setting("the encoder's self-attention")
    decoder_self_mixer: str = _mixer_setting("the decoder's self-attention")
    cross_mixer: str = _mixer_setting("cross-attention")
    seed: int = _of_training("random seed (default: 1)", 1, parsers.whole_number)
    name: str | None = setting("name of the run (default: its mixers)", parse=parsers.run_name)
    init_from: Path | None = setting(
        "start from the weights of a checkpoint of the same architecture, such as averaged.pt: fine-tuning, also with "
        "other words or for another language pair",
        parse=parsers.folder,
        metavar="CHECKPOINT",
    )

    def check(self) -> None:
        """Refuse settings that do not fit together, and places where data and runs cannot be."""
        super().check()
        if self.init_from and not (self.init_from.is_file() or self.dry_run):
            refuse("init_from", self.init_from, "there is no such checkpoint. Check the path.")
        from posnet_fairseq.runs.systems import find_mixer  # last, as it imports torch

        find_mixer(self.mixer, "--mixer")
        from posnet_fairseq.registry import get_mixer
        from posnet_fairseq.transformer.placement import listed

        for name, mixers in self._mixers.items():
            for mixer in listed(flag(name), mixers):
                get_mixer(mixer, flag(name))
            if flag(name) in by_name(self.options):
                refuse(name, mixers, f"{flag('options')} has it, too. Give it once.")
        if len(self.system) > _LONGEST_NAME:
            refuse("name", self.system, "made of the mixers, this is too long. Give the run a name.")

    @property
    def _mixers(self) -> dict[str, str]:
        """The mixers of places that have others than the architecture, by setting."""
        return {name: mixers for name in _OF_PLACES if (mixers := getattr(self, name))}

    def recorded(self, stage: str) -> dict[str, Any]:
        """Return the values that the outcome of a stage depends on, by flag; those of --options are among them."""
        values = super().recorded(stage)
        options = by_name(values.pop("--options", ""))
        return values | {name: value for name, value in options.items() if name not in _FREE}

    @property
    def model_options(self) -> list[str]:
        """The run's options of fairseq-train: the mixers of places, and others."""
        return [
            *(word for name, mixers in self._mixers.items() for word in (flag(name), mixers)),
            *self.options.split(),
        ]

    @cached_property
    def system(self) -> str:
        """The name of the system: as given, else its mixers, as ``rposnet_encoder.lightconv-2+attention``."""
        if self.name or not self._mixers:
            return self.name or self.mixer
        from posnet_fairseq.transformer.placement import in_short  # imports torch

        places = (f"{name.split('_')[0]}.{in_short(mixers.split(','))}" for name, mixers in self._mixers.items())
        return "_".join([self.mixer, *places]).replace("×", "-")

    @cached_property
    def run(self) -> Path:
        """The run's folder."""
        return self.runs_folder / f"{self.system}_{self.size}_s{self.seed}"

    @property
    def arch(self) -> str:
        """The architecture, as fairseq-train's ``--arch`` names it."""
        return f"{self.mixer}_{self.size}"

    @property
    def plugin(self) -> list[Path | str]:
        """Options of posnet's commands that give them the user's own mixers."""
        return ["--user-dir", self.user_dir] if self.user_dir else []


@dataclass(frozen=True)
class TranslationData:
    """A dataset for translation, as its card describes it."""

    source: str  # language
    target: str
    key: str  # hash of all that the data was made of
    test_sets: tuple[str, ...] = ("test",)  # fairseq's names, perhaps with test1
    lowercase: bool = False  # whether the target side is, and so are translations: scores must ignore case
    exists: bool = True  # False in a dry run without a dataset
    directions: Mapping[str, str] = field(default_factory=dict)  # "en-de" of each test set, if there are several

    def languages(self, test_set: str) -> tuple[str, str]:
        """Return source and target language of a test set."""
        source, _, target = self.directions.get(test_set, "").partition("-")
        return source or self.source, target or self.target

    @classmethod
    def read(cls, folder: Path, dry_run: bool = False) -> "TranslationData":
        """Return the dataset in a folder; in a dry run capitals stand for languages where there is none."""
        path = folder / CARD
        if not path.exists():
            if dry_run:
                return cls("SOURCE", "TARGET", "unknown", exists=False)
            raise UsageError(f"{folder}: there is no dataset yet. Run the stage prepare first.")
        card = DatasetCard.read(folder)
        found = card.source_lang, card.target_lang, card.key
        if not all(text and re.fullmatch(r"[\w.+-]+", text) for text in found):
            raise UsageError(f"{path} does not say both languages: it is no dataset for translation.")
        source, target, key = map(str, found)
        for language in (source, target):
            check_dictionary(folder, language)
        tests = tuple(name for name in card.sentences or () if name.startswith("test")) or cls.test_sets
        directions = (card.test_sets or {}) if card.tags else {}
        return cls(source, target, key, tests, card.is_lowercase(target), directions=directions)
