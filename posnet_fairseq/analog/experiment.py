"""Translations of a model whose parts are on crossbars, after each of several programmings."""

import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from posnet_eval.api import Result, score
from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import MetricOptions
from posnet_fairseq.analog.crossbar_translation import CrossbarTranslation, Experiment
from posnet_fairseq.analog.hardware import seconds
from posnet_fairseq.inference.search.search_settings import RECORDED
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import read_lines, write_lines
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import changed, read_json
from posnet_fairseq.text.plain import read_parallel

RECORD, REPORT, DIGITAL = "record.json", "report.json", "digital"


def run(experiment: Experiment, report: ProgressReporter) -> Result:
    """Translate with the digital model and with every programming, and score the translations.

    Translations that are there from an earlier attempt are kept. In the scores that are returned, the digital model is
    the baseline, and programmings are the runs of a system.
    """
    source, reference = read_parallel(*experiment.test)
    translation = CrossbarTranslation(experiment, source)
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
