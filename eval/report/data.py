"""The result as data: JSON with everything, CSV with a line for each score."""

import csv
import dataclasses
import io
import json

import numpy as np

_SCORE = ("score", "low", "high", "half_width", "deviation", "runs")
_DIFFERENCE = ("difference", "difference_low", "difference_high", "p", "p_shift", "win_rate", "mark")
# What spreadsheets begin a formula with.
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
CSV_HEADER = ("test_set", "system", "label", "metric", *_SCORE, "baseline", *_DIFFERENCE, "signature")


def as_json(comparison):
    """Everything but the texts, those of outputs and references: they are in files already."""
    content = {field.name: getattr(comparison, field.name) for field in dataclasses.fields(comparison)}
    content["test_sets"] = [_test_set(comparison, test_set) for test_set in comparison.test_sets]
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def as_csv(comparison):
    """A line for each test set, system, metric and baseline ("" and no difference where there is none), facts last.

    Names and facts that a spreadsheet would take for a formula have an apostrophe in front; numbers stay numbers.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*CSV_HEADER, *map(_no_formula, comparison.columns)])
    for test_set in comparison.test_sets:
        for system, scores in test_set.scores.items():
            facts = [_no_formula(column.get(system, "")) for column in comparison.columns.values()]
            against = [name for name in comparison.baselines if name != system and name in test_set.scores]
            for info in test_set.metrics:
                score = scores[info.name]
                deviation = "" if score.deviation is None else score.deviation
                row = [*map(_no_formula, (test_set.name, system, comparison.labels[system])), info.label]
                row += [score.value, score.low, score.high, score.half_width, deviation, len(score.runs)]
                for baseline in against or [""]:
                    compared = [""] * len(_DIFFERENCE)
                    if baseline:
                        found = test_set.difference(system, baseline, info.name)
                        p = "" if found.p is None else found.p
                        compared = [found.value, found.low, found.high, p, found.p_shift, found.win_rate, found.arrow]
                    writer.writerow([*row, _no_formula(baseline), *compared, info.signature, *facts])
    return text.getvalue()


def _no_formula(value):
    """A cell that is text to a spreadsheet, as OWASP advises (CSV injection); a number as it is."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _test_set(comparison, test_set):
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
