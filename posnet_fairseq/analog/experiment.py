"""Translations of a model, and of the same model with parts on crossbars after each of several programmings."""

import copy
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from aihwkit.nn.modules.base import AnalogLayerBase
from torch import nn

from posnet_eval.api import Result, score
from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import MetricOptions
from posnet_fairseq.analog.convert import put_on_crossbars
from posnet_fairseq.analog.hardware import Hardware, seconds
from posnet_fairseq.inference.model_folder import WEIGHTS
from posnet_fairseq.inference.model_loading import load_models
from posnet_fairseq.inference.search.beam import BeamSearch
from posnet_fairseq.inference.search.search_settings import RECORDED, SearchSettings
from posnet_fairseq.inference.translator import Batches, Translator
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import is_blank, read_lines, write_lines
from posnet_fairseq.shared.progress import ProgressReporter, shown
from posnet_fairseq.shared.records import changed, digest, installed_versions, json_if_whole
from posnet_fairseq.text.card import CARD, DatasetCard
from posnet_fairseq.text.pipeline import choose_pipeline
from posnet_fairseq.text.plain import read_parallel
from posnet_fairseq.transformer.model import Transformer

RECORD, REPORT, DIGITAL = "record.json", "report.json", "digital"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is on crossbars, and what is translated.

    `adc_bits`, of the converters of outputs, take the place of those of the hardware; `times` are since programming;
    `test` is source text and reference; `beam` and `data` are the model's own if None; `text` is for
    :func:`posnet_fairseq.text.pipeline.choose_pipeline`.
    """

    model: str
    parts: tuple[str, ...]
    hardware: Hardware
    adc_bits: tuple[int, ...]
    times: tuple[str, ...]
    programmings: int
    renormalize: bool
    test: tuple[Path, Path]
    seed: int
    beam: int | None
    data: str | None
    text: Mapping[str, Any]
    out: Path

    @property
    def cells(self) -> dict[str, tuple[str, int]]:
        """Times and bits by the name that tables have for them."""
        several = len(self.adc_bits) > 1
        return {
            f"{time} {bits} bits" if several else time: (time, bits)
            for time, bits in itertools.product(self.times, self.adc_bits)
        }

    def place(self, time: str, bits: int, number: int) -> Path:
        """Return the file of a translation."""
        return self.out / f"{time}.adc{bits}.{number}.txt"

    def describe(self) -> dict[str, Any]:
        """Return all that translations depend on but the text, for the record."""
        path = Path(self.model)
        return {
            "weights": digest(path / WEIGHTS if path.is_dir() else path),
            "parts": list(self.parts),
            "renormalize": self.renormalize,
            "hardware": {name: value for name, value in self.hardware.describe().items() if name != "adc_bits"},
            "seed": self.seed,
            "text": {name: str(value) for name, value in self.text.items() if value},
            "versions": installed_versions("torch", "aihwkit"),
        }


class CrossbarTranslation:
    """The lines of an experiment, and its model to translate them with, whose parts are on crossbars or not.

    Attributes:
        lowercase: whether the data's target side is in lower case.
        longest: tokens of the longest source, and most tokens of its translation.
    """

    def __init__(self, experiment: Experiment, lines: Sequence[str]) -> None:
        self._experiment, beam = experiment, experiment.beam
        (self._digital,), self.vocabulary, folder, recorded = load_models([experiment.model], experiment.data)
        self._pipeline = choose_pipeline(folder, self.vocabulary.languages, **experiment.text)
        self.lowercase = (folder / CARD).exists() and DatasetCard.read(folder).is_lowercase(self.vocabulary.target_lang)
        self.settings = SearchSettings(**recorded if beam is None else {**recorded, "beam": beam})
        self.settings.check_words(len(self.vocabulary.target_dictionary))
        self._batches = Batches(lines, self._translator(self._digital))
        source = max((len(tokens) for batch in self._batches for tokens in batch.sources), default=1)
        target = int(self.settings.max_len_a * source + self.settings.max_len_b) + 1
        self.longest = source, min(target, self._digital.decoder.max_positions())
        self._on_crossbars: dict[int, Transformer] = {}

    def place(self, bits: int) -> dict[str, int]:
        """Put the parts on crossbars whose outputs have converters of these bits; return the weights of each part."""
        model = copy.deepcopy(self._digital)
        experiment = self._experiment
        configuration = replace(experiment.hardware, adc_bits=bits).configuration()
        placed = put_on_crossbars(model, experiment.parts, configuration, self.longest, experiment.renormalize)
        self._on_crossbars[bits] = model
        return placed

    def digital(self) -> list[str]:
        """Return translations of the model as it is."""
        return self._translations(self._digital)

    def analog(self, bits: int, number: int, time: int) -> list[str]:
        """Return translations with parts on crossbars, `time` seconds after a programming, counted from 1."""
        if bits not in self._on_crossbars:
            self.place(bits)
        model, seed = self._on_crossbars[bits], self._experiment.seed
        if self._experiment.hardware.noise != "none":
            program(model, seed, number)
            let_drift(model, seed, number, time)
        torch.manual_seed(seed_of(seed, "reading", number, time, bits))
        return self._translations(model)

    def _translator(self, model: Transformer) -> Translator:
        search = BeamSearch([model], self.vocabulary.target_dictionary, self.settings)
        return Translator(search, self.vocabulary, self._pipeline, model.encoder.max_positions())

    def _translations(self, model: Transformer) -> list[str]:
        found = map(self._translator(model).translate, self._batches)
        return [best.text for best, *_ in self._batches.in_order(found)]


def tiles(model: nn.Module) -> dict[str, Any]:
    """Return the crossbars of a model, by name."""
    return {
        f"{name}.{number}": tile
        for name, module in model.named_modules()
        if isinstance(module, AnalogLayerBase)
        for number, tile in enumerate(module.analog_tiles())
    }


@torch.no_grad()
def program(model: nn.Module, seed: int, number: int) -> None:
    """Program all crossbars anew. What noise a crossbar gets depends on its name, not on which others there are.

    `number` is that of the programming, from 1.
    """
    for name, tile in tiles(model).items():
        torch.manual_seed(seed_of(seed, "programming", number, name))
        tile.program_weights()


@torch.no_grad()
def let_drift(model: nn.Module, seed: int, number: int, time: int) -> None:
    """Let the conductances drift for `time` seconds since they were programmed, see :func:`program`."""
    for name, tile in tiles(model).items():
        torch.manual_seed(seed_of(seed, "drift", number, time, name))
        tile.drift_weights(float(time))


def seed_of(*what: object) -> int:
    """Return a seed for torch that is another one for everything that differs."""
    return int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:7], "big")


def run_experiment(experiment: Experiment, report: ProgressReporter) -> Result:
    """Translate with the digital model and with every programming, and score the translations.

    Translations that are there from an earlier attempt are kept. In the scores that are returned, the digital model is
    the baseline, and programmings are the runs of a system.
    """
    source, reference = read_parallel(*experiment.test)
    for path, lines in zip(experiment.test, (source, reference), strict=True):
        if all(map(is_blank, lines)):
            raise UsageError(f"--test {path} is empty. Give one with text.")
    translation = CrossbarTranslation(experiment, source)
    get_metric("bleu", MetricOptions(translation.vocabulary.languages[1]))  # refused now, not after hours
    placed = translation.place(experiment.adc_bits[0])
    record = experiment.describe() | {
        "test": _hashes((source, reference)),
        "search": {name: getattr(translation.settings, name) for name in RECORDED},
        "positions": list(translation.longest),
        "vocabulary": _hashes(dictionary.symbols for dictionary in translation.vocabulary.dictionaries),
        "weights on crossbars": placed,
    }
    experiment.out.mkdir(parents=True, exist_ok=True)
    _refuse_other(experiment.out, record)
    write_lines(experiment.out / RECORD, [json.dumps(record, indent=1, ensure_ascii=False)])
    numbers = range(1, experiment.programmings + 1)
    work: dict[Path, Callable[[], list[str]]] = {experiment.out / f"{DIGITAL}.txt": translation.digital}
    for number, (time, bits) in itertools.product(numbers, experiment.cells.values()):
        work[experiment.place(time, bits, number)] = functools.partial(translation.analog, bits, number, seconds(time))
    with report.stage("translate", "lines", len(source) * len(work)) as bar:
        for path, translate in work.items():
            if not path.exists():
                write_lines(path, translate())
            bar.advance(len(source))
    outputs: dict[str, Any] = {DIGITAL: [read_lines(experiment.out / f"{DIGITAL}.txt")]}
    for name, (time, bits) in experiment.cells.items():
        outputs[name] = [read_lines(experiment.place(time, bits, number)) for number in numbers]
    result = score(
        outputs,
        reference,
        baseline=DIGITAL,
        language_pair="-".join(translation.vocabulary.languages),
        lowercase=translation.lowercase,
        progress=True,
    )
    # Remarks about every programming would hide the table.
    (only,) = result.test_sets
    remarks = tuple(remark for remark in only.remarks if remark.system in ("", DIGITAL))
    result = replace(result, test_sets=(replace(only, remarks=remarks),))
    cells = {name: {"seconds": seconds(time), "adc_bits": bits} for name, (time, bits) in experiment.cells.items()}
    rows = [row | cells.get(row["system"], {}) for row in result.rows()]
    about = {"model": shown(experiment.model), "programmings": experiment.programmings, "lines": len(source)}
    written = record | about | {"scores": rows}
    write_lines(experiment.out / REPORT, [json.dumps(written, indent=1, ensure_ascii=False)])
    return result


def _hashes(texts: Iterable[Iterable[str]]) -> list[str]:
    return [hashlib.sha256("\n".join(lines).encode()).hexdigest() for lines in texts]


def _refuse_other(folder: Path, record: Mapping[str, Any]) -> None:
    """Refuse a folder of translations of another experiment."""
    there = json_if_whole(folder / RECORD)
    if not isinstance(there, dict):
        if any(folder.iterdir()):
            raise UsageError(f"--out {folder} has other files. Give another folder, or an empty one.")
        return
    # Of a folder that 0.3.0 filled.
    there.setdefault("vocabulary", record["vocabulary"])
    there["renormalize"] = there.pop("renormalise", there.get("renormalize"))
    different = changed(there, json.loads(json.dumps(record)))
    if different:
        raise UsageError(
            f"--out {folder} is of another experiment, with a difference in: {', '.join(different)}. Give another "
            "folder."
        )
