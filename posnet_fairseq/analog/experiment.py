"""Translations of a model whose parts are on crossbars, after each of several programmings."""

import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from posnet_eval.api import Result, score
from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import MetricOptions
from posnet_fairseq.analog.hardware import Hardware, seconds
from posnet_fairseq.analog.translating import CrossbarTranslation
from posnet_fairseq.inference.model_folder import WEIGHTS
from posnet_fairseq.inference.search.settings import RECORDED
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import read_lines, write_lines
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import changed, digest, installed_versions, read_json
from posnet_fairseq.text.plain import read_parallel

RECORD, REPORT, DIGITAL = "record.json", "report.json", "digital"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is on crossbars, and what is translated.

    Attributes:
        model: checkpoint or model folder.
        parts: of :data:`posnet_fairseq.shared.parts.PARTS`.
        hardware: the crossbars, but for the bits of the converters of outputs.
        adc_bits: several of them.
        times: since the programming, as texts.
        programmings: how often the crossbars are programmed anew.
        renormalise: see :class:`posnet_fairseq.analog.mixing.StoredMixing`.
        test: source text and reference.
        seed: of everything random.
        beam: hypotheses of the search; None: the model's own.
        data: directory with the dictionaries and the card of the data, or None for the model's own.
        text: how text is split into tokens, see :func:`posnet_fairseq.text.pipeline.choose_pipeline`.
        out: folder of the translations, the record and the report.
    """

    model: str
    parts: tuple[str, ...]
    hardware: Hardware
    adc_bits: tuple[int, ...]
    times: tuple[str, ...]
    programmings: int
    renormalise: bool
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
        """The file of a translation."""
        return self.out / f"{time}.adc{bits}.{number}.txt"

    def describe(self) -> dict[str, Any]:
        """All that translations depend on but the text, for the record."""
        path = Path(self.model)
        named = {name: str(value) for name, value in self.text.items() if value}
        return {
            "weights": digest(path / WEIGHTS if path.is_dir() else path, "sha256"),
            "parts": list(self.parts),
            "renormalise": self.renormalise,
            "hardware": {name: value for name, value in self.hardware.describe().items() if name != "adc_bits"},
            "seed": self.seed,
            "text": named,
            "versions": installed_versions("torch", "aihwkit"),
        }


def run(experiment: Experiment, report: ProgressReporter) -> Result:
    """Translate with the digital model and with every programming, and score the translations.

    Translations that are there from an earlier attempt are kept.

    Args:
        experiment: what to do.
        report: of progress.

    Returns:
        the scores: the digital model is the baseline, programmings are the runs of a system.

    Raises:
        UsageError: the model has no such parts, the folder is of another experiment, or the test set cannot be used.
    """
    source, reference = read_parallel(*experiment.test)
    translation = CrossbarTranslation(
        experiment.model,
        source,
        experiment.parts,
        experiment.hardware,
        experiment.renormalise,
        experiment.seed,
        experiment.beam,
        experiment.data,
        experiment.text,
    )
    get_metric("bleu", MetricOptions(translation.vocabulary.languages[1]))  # refused now, not after hours
    placed = translation.place(experiment.adc_bits[0])
    record = experiment.describe() | {
        "test": [hashlib.sha256("\n".join(lines).encode()).hexdigest() for lines in (source, reference)],
        "search": {name: getattr(translation.settings, name) for name in RECORDED},
        "positions": list(translation.longest),
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
    about = {"model": experiment.model, "programmings": experiment.programmings, "lines": len(source)}
    written = record | about | {"scores": rows}
    write_lines(experiment.out / REPORT, [json.dumps(written, indent=1, ensure_ascii=False)])
    return result


def _refuse_other(folder: Path, record: Mapping[str, Any]) -> None:
    """Refuse a folder of translations of another experiment."""
    there = read_json(folder / RECORD)
    if not isinstance(there, dict):
        if any(folder.iterdir()):
            raise UsageError(f"--out {folder} has other files. Give another folder, or an empty one.")
        return
    different = changed(there, json.loads(json.dumps(record)))
    if different:
        raise UsageError(
            f"--out {folder} is of another experiment, with a difference in: {', '.join(different)}. Give another "
            "folder."
        )
