"""Results as data: JSON with everything, CSV with a line for each score, TSV with a line for each segment."""

import csv
import dataclasses
import io
import json
from typing import Any

import numpy as np

from posnet_eval.inputs.plan import ROW_COLUMNS
from posnet_eval.statistics.results import Comparison, TestSetResult

# What a formula in a spreadsheet begins with.
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")


def as_json(comparison: Comparison) -> str:
    """Return everything except the texts, which are in files already."""
    content = {field.name: getattr(comparison, field.name) for field in dataclasses.fields(comparison)}
    content["test_sets"] = [_test_set(comparison, test_set) for test_set in comparison.test_sets]
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def as_csv(comparison: Comparison) -> str:
    """Return the rows of :meth:`Comparison.rows`, with empty cells for what does not apply."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*ROW_COLUMNS, *map(_no_formula, comparison.columns)])
    for row in comparison.rows():
        writer.writerow([value if name == "mark" else _no_formula(value) for name, value in row.items()])
    return text.getvalue()


def as_tsv(comparison: Comparison) -> str:
    """Return the scores of segments, means over runs, with a column for each system and metric."""
    labels = {info.name: info.label for test_set in comparison.test_sets for info in test_set.metrics}
    columns = [(system, metric) for system in comparison.systems for metric in labels]
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    titles = [f"{system} {labels[metric]}" for system, metric in columns]
    writer.writerow(["test set", "line", *map(_no_formula, titles)])
    for test_set in comparison.test_sets:
        found = [test_set.segments.get(metric, {}).get(system) for system, metric in columns]
        for number in range(test_set.size):
            scores = ("" if one is None else f"{one[number]:.4f}" for one in found)
            writer.writerow([_no_formula(test_set.name), number + 1, *scores])
    return text.getvalue()


def _no_formula(value: Any) -> Any:
    """Return a cell that spreadsheets read as text, as OWASP advises (CSV injection); a number unchanged."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _test_set(comparison: Comparison, test_set: TestSetResult) -> dict[str, Any]:
    return {
        "name": test_set.name,
        "languages": test_set.languages,
        "size": test_set.size,
        "metrics": [dataclasses.asdict(info) for info in test_set.metrics],
        "scores": {
            system: {
                metric: dataclasses.asdict(score) | {"marks": comparison.marks(test_set, system, metric)}
                for metric, score in scores.items()
            }
            for system, scores in test_set.scores.items()
        },
        "differences": [
            {"system": a, "from": b, "metrics": {name: dataclasses.asdict(one) for name, one in found.items()}}
            for (a, b), found in test_set.differences.items()
        ],
        "missing": test_set.missing,
        "by_length": [dataclasses.asdict(bucket) for bucket in test_set.by_length],
        "remarks": [dataclasses.asdict(remark) for remark in test_set.remarks],
        "segments": {
            metric: {system: np.round(scores, 4).tolist() for system, scores in of_metric.items()}
            for metric, of_metric in test_set.segments.items()
        },
    }
