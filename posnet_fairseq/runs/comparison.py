"""The report of finished runs: their figures beside their scores, and their curves."""

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from posnet_eval.report.wording import listed
from posnet_fairseq.runs import earlier_records
from posnet_fairseq.runs.command_stage import last_attempt
from posnet_fairseq.runs.run_settings import TranslationData
from posnet_fairseq.runs.training import gpu_memory, progress, training_speed
from posnet_fairseq.shared.command import NO_READER
from posnet_fairseq.shared.errors import UsageError, counted, flag, visible
from posnet_fairseq.shared.files import replacing
from posnet_fairseq.shared.processes import run_attached
from posnet_fairseq.shared.records import Record
from posnet_fairseq.shared.schema import read_yaml
from posnet_fairseq.text.card import DatasetCard

BUSY = 1.0  # processes more than cores from which on a machine counts as busy
MODEL = "precomputed.pt"  # of a run, which translates
PLAN = "comparison.yaml"


@dataclass(frozen=True)
class Model:
    """The model of a run that translates: its options, as attributes, and its number of parameters."""

    options: Any
    parameters: int  # a shared embedding counts once

    @classmethod
    def of(cls, checkpoint: Path) -> "Model":
        """Return that of a checkpoint."""
        from posnet_fairseq.inference.checkpoints import model_options, read_checkpoint
        from posnet_fairseq.inference.model_loading import build_model
        from posnet_fairseq.inference.stored_energies import parameter_count

        # Of the model: a checkpoint also has names of mixers and a length ratio, as whole numbers.
        state = read_checkpoint(checkpoint)
        return cls(model_options(state), parameter_count(build_model(state)))

    @property
    def gate(self) -> str:
        """The gate of its self-attention, as ``--gate`` names it, or the gates of layers and sides that differ."""
        return _self_attention_gate(self.options)


def decoding_speed(run: Path, stage: str = "translate") -> float | None:
    """Return sentences a second, as posnet-translate has measured them; None if it had none to translate."""
    attempt = _last(run, stage)
    if "result" in attempt:
        return attempt["result"].get("sentences_per_second")
    return earlier_records.decoding_speed(last_attempt(run / f"{stage}.log"))


def peak_memory(run: Path) -> float:
    """Return the bytes that training took at most: of a GPU where there is one, else of the largest process."""
    of_gpu = gpu_memory((run / "train.log").read_text(encoding="utf-8", errors="replace"))
    attempts = Record(run / "train.json").content["attempts"]
    return of_gpu or max((attempt.get("peak_memory_bytes", 0) for attempt in attempts), default=0)


class Column(NamedTuple):
    """A column of the report: a figure of each run of a system, that of all runs together, and how it is shown."""

    figure: Callable[[Path, Model], Any]
    over_runs: Callable[[list[Any]], Any]
    shown: Callable[[Any], Any]
    stage: str | None = None  # whose speed it is


COLUMNS = {
    "gate": Column(lambda run, model: model.gate, lambda gates: gates[0], str),
    "updates": Column(lambda run, model: progress(run / "train.log")[0], statistics.mean, round),
    "params": Column(lambda run, model: model.parameters, statistics.mean, lambda number: f"{number / 1e6:.2f}M"),
    "train tokens/s": Column(lambda run, model: training_speed(run / "train.log"), statistics.mean, round, "train"),
    "decode sent./s": Column(
        lambda run, model: decoding_speed(run), statistics.mean, lambda number: round(number, 1), "translate"
    ),
    "train memory": Column(lambda run, model: peak_memory(run), max, lambda number: f"{number / 2**30:.2f} GiB"),
}


def _last(run: Path, stage: str) -> Any:
    return Record(run / f"{stage}.json").content["attempts"][-1]


def conditions(run: Path, stage: str) -> str:
    """Return a text of all that the speed of a stage depends on besides the system."""
    attempt = _last(run, stage)
    machine = {name: value for name, value in attempt["machine"].items() if name != "host"}
    where = ("--cpu", "--bf16", "--fp16", "--distributed-world-size", "--nproc-per-node", "--nnodes", "--processes")
    pairs = sorted(pair for pair in itertools.pairwise([*attempt["command"], ""]) if pair[0] in where)
    return f"{machine} {pairs}"


def data_sentence(folder: Path) -> str:
    """Return what a dataset has, in a sentence: its folder, pairs, vocabulary, and what cleaning removed."""
    card = DatasetCard.read(folder)
    counts = ", ".join(f"{count:,} {name}" for name, count in (card.sentences or {}).items())
    words = " and ".join(f"{count:,} ({language})" for language, count in (card.vocabulary or {}).items())
    dropped = sum((card.dropped or {}).values())
    removed = f"; {counted(dropped, 'training pair')} removed by cleaning" if dropped else ""
    return f"Data: {visible(folder.name)}; pairs: {counts}; vocabulary: {words}{removed}."


class _Labeled(msgspec.Struct):
    """What a comparison keeps of its earlier comparison.yaml, where people give their systems labels."""

    systems: list[str] | dict[str, str | None]


class ComparisonFolder:
    """The folder of a comparison on a dataset, of the folders of the runs of each system."""

    def __init__(self, data: Path, folder: Path, runs: Mapping[str, Sequence[Path]]):
        self.data, self.folder, self.runs = data, folder, runs
        self.labels = {system: system for system in runs}  # in tables and pictures

    def check(self) -> None:
        """Read labels, and refuse other comparisons and files in its place, before days of training."""
        from posnet_eval.report import publish
        from posnet_fairseq.plots import style

        self._read_labels()
        if self.folder.exists():
            publish.check_report_folder(self.folder / "report", ())
            style.refuse_foreign(style.files_of(self.folder / "curves", ("png",)))

    def _read_labels(self) -> None:
        if (path := self.folder / PLAN).exists():
            given = read_yaml(path, _Labeled).systems
            if others := [system for system in given if system not in self.runs]:
                raise UsageError(
                    f"{path}: the report beside it compares {listed(others)}, too. Rename its folder to keep them, or "
                    "remove it."
                )
            labels = given.items() if isinstance(given, dict) else ()
            self.labels |= {system: label for system, label in labels if system in self.runs and label}
            if len(set(self.labels.values())) < len(self.labels):
                raise UsageError(f"{path}: systems {listed(self.labels.values())}: give each a label of its own.")

    def make(self, baselines: Sequence[str], metrics: Sequence[str]) -> None:
        """Write comparison.yaml, score it into report/, and draw curves.png."""
        from posnet_fairseq.plots import curves  # takes matplotlib along, which nothing needs before the runs are done

        self.folder.mkdir(parents=True, exist_ok=True)
        self._read_labels()  # again: they may have been edited during the training
        data = TranslationData.read(self.data)
        models = {run: Model.of(run / MODEL) for runs in self.runs.values() for run in runs}
        plan = {
            "systems": self.labels,
            "baselines": list(baselines),
            "metrics": list(metrics),
            "lowercase": data.lowercase,
            "columns": self.columns(models),
            "notes": [
                *differences(
                    {self.labels[system]: models[runs[0]].options for system, runs in self.runs.items()},
                    self.labels[baselines[0]],
                ),
                *self.busy(),
                data_sentence(self.data),
            ],
            "pictures": {"Learning curves": "curves.png"},
            "test_sets": {
                name: {
                    "languages": "-".join(data.languages(name)),
                    "source": str((self.data / f"{name}.{data.source}").absolute()),
                    "reference": str((self.data / f"{name}.{data.target}").absolute()),
                    "outputs": {
                        system: [str((run / f"{name}.{data.target}").absolute()) for run in runs]
                        for system, runs in self.runs.items()
                    },
                }
                for name in data.test_sets
            },
        }
        path = self.folder / PLAN
        with replacing(path) as temporary:
            temporary.write_text(yaml.safe_dump(plan, sort_keys=False, allow_unicode=True, width=120), encoding="utf-8")
        logs = {self.labels[name]: [run / "train.log" for run in runs] for name, runs in self.runs.items()}
        curves.draw(logs, self.folder / "curves", ("loss", "validation loss"), ("png",))
        code = run_attached(["posnet-score", "--config", str(path), "--out", str(self.folder / "report")])
        if code == NO_READER:
            raise BrokenPipeError  # the report is written
        if code:
            raise UsageError(f"posnet-score --config {path} failed: see above. The runs are kept.")

    def columns(self, models: Mapping[Path, Model]) -> dict[str, dict[str, Any]]:
        """Return the figure of each system, by title of a column and by system."""
        columns = {}
        for title, column in COLUMNS.items():
            found = {system: [column.figure(run, models[run]) for run in runs] for system, runs in self.runs.items()}
            known = {system: figures for system, figures in found.items() if None not in figures}
            if column.stage:
                terms = {conditions(run, column.stage) for runs in self.runs.values() for run in runs}
                title += " (not comparable)" * (len(terms) > 1) + " *" * bool(self._loads(column.stage))
            columns[title] = {system: column.shown(column.over_runs(figures)) for system, figures in known.items()}
        return {title: column for title, column in columns.items() if column}

    def busy(self) -> list[str]:
        """Return a sentence about speeds that were measured while other programs worked on the machine, or none."""
        loads = {stage: found for stage in ("train", "translate") if (found := self._loads(stage))}
        sentences = "; ".join(f"{stage} of {', '.join(found)}" for stage, found in loads.items())
        most = max((average for found in loads.values() for average in found.values()), default=0.0)
        said = f"* Too low, because the machine was busy (load average up to {most}): speed of {sentences}."
        return [said] if loads else []

    def _loads(self, stage: str) -> dict[str, float]:
        """Return the largest load average when a stage ended, of systems where it exceeded the cores: others worked."""
        found: dict[str, float] = {}
        for name, runs in self.runs.items():
            for attempt in (_last(run, stage) for run in runs):
                average = attempt.get("load_average", 0.0)
                if average > attempt["machine"]["cores"] + BUSY:
                    found[self.labels[name]] = max(average, found.get(self.labels[name], 0.0))
        return found


def differences(models: Mapping[str, Any], baseline: str) -> list[str]:
    """Return sentences about what systems differ in from the baseline besides the mixer; none where it is nothing.

    ``models`` are the options of the models of systems.
    """
    options = {system: _besides_mixer(cfg) for system, cfg in models.items()}
    usual = options[baseline]
    systems: dict[tuple[str, ...], list[str]] = {}  # by what they differ in
    for system, own in options.items():
        found = tuple(f"{name} {own[name]} ({baseline}: {usual[name]})" for name in own if own[name] != usual[name])
        systems.setdefault(found, []).append(system)
    return [
        f"Other differences from {baseline}: {listed(names)} {'has' if len(names) == 1 else 'have'} {listed(found)}."
        for found, names in systems.items()
        if found
    ]


def _besides_mixer(cfg: Any) -> dict[str, str]:
    """Return the options of a translation model by flag, without its mixers' own; the decoder's mixer is one.

    So are the encoder's mixers if its layers have different ones.
    """
    from posnet_fairseq.mixers.bases.mixer_settings import PLACE_OPTIONS
    from posnet_fairseq.registry import option_fields
    from posnet_fairseq.transformer.model_options import translation_model_fields
    from posnet_fairseq.transformer.placement import gates_at, in_short, position_kind

    layers = {option: [*map(str.strip, getattr(cfg, option).split(","))] for option in PLACE_OPTIONS.values()}
    named = {option: in_short(names) for option, names in layers.items()}
    if named["decoder_self_mixer"] == named["encoder_self_mixer"]:
        named["decoder_self_mixer"] = "as the encoder"
    if len({*layers["encoder_self_mixer"]}) == 1:
        named["encoder_self_mixer"] = "the same in all layers"
    of_sides = {f"{side}_{name}" for side in ("encoder", "decoder") for name in ("gate", "position_embedding")}
    names = {option.name for option in translation_model_fields()} - option_fields().keys() - of_sides
    options = {name: getattr(cfg, name) for name in names} | named
    options |= {
        "gate": _self_attention_gate(cfg),
        "cross_gate": in_short(gates_at(cfg, "cross")),
        "position_embedding": _of_both(position_kind(cfg, "encoder"), position_kind(cfg, "decoder")),
    }
    return {flag(name): str(value) for name, value in sorted(options.items())}


def _self_attention_gate(cfg: Any) -> str:
    from posnet_fairseq.transformer.placement import gates_at, in_short

    return _of_both(*(in_short(gates_at(cfg, place)) for place in ("encoder", "decoder")))


def _of_both(encoder: str, decoder: str) -> str:
    """Return the text for an option's values on both sides."""
    return encoder if encoder == decoder else f"{encoder} in the encoder and {decoder} in the decoder"
