"""The HTML page of a comparison, which needs no network and no other file.

Imports matplotlib and jinja2; commands import this module only when a page is written.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from posnet_eval.inputs.hygiene import Remark
from posnet_eval.inputs.plan import SYMBOLS, Fact
from posnet_eval.report import formats, plots, wording
from posnet_eval.report.browser import browsable
from posnet_eval.statistics.results import SIGNIFICANT, Comparison, Difference, MetricInfo, TestSetResult

_AMOUNT = re.compile(r"(?P<number>-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?P<unit>.*)")


def render(comparison: Comparison) -> str:
    """Return the page as HTML, to be written as UTF-8. Equal comparisons give equal pages."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Scripts cannot read NaN: no page is better than one that looks complete.
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    for function in (formats.decimal, formats.signed, formats.probability, formats.percent, formats.listed):
        environment.filters[function.__name__] = function
    environment.filters["label"] = comparison.labels.get
    return environment.get_template("page.html").render(
        comparison=comparison,
        baselines=wording.baselines(comparison),
        test=wording.significance_test(comparison),
        interval=wording.interval(comparison),
        significant=SIGNIFICANT,
        sections=[_section(comparison, test_set) for test_set in comparison.test_sets],
        reproduction=wording.reproduction(comparison),
        for_paper=wording.for_paper(comparison),
    )


def _section(comparison: Comparison, test_set: TestSetResult) -> dict[str, Any]:
    """Return the template's values for a test set."""
    scored = [system for system in comparison.systems if system in test_set.scores]
    section: dict[str, Any] = {
        "test_set": test_set,
        "rows": [_row(comparison, test_set, system) for system in comparison.systems],
        "differences": _differences(comparison, test_set),
        "several_runs": any(len(runs) > 1 for runs in test_set.outputs.values()),
        "remarks": _remarks(comparison, test_set),
        "scored": scored,
    }
    if scored:
        styles = {system: each for system, each in plots.line_styles(comparison).items() if system in scored}
        section |= {
            "intervals": [plots.intervals(comparison, test_set, metric, styles) for metric in test_set.metrics],
            "by_length": [plots.by_length(test_set, metric, styles) for metric in test_set.metrics]
            if test_set.by_length
            else [],
            "legend": [(comparison.labels[system], plots.swatch(test_set, system, styles)) for system in styles],
            "others": plots.swatch(test_set, "", {}) if len(styles) < len(scored) else "",
            "browsable": browsable(comparison, test_set),
        }
    return section


def _row(comparison: Comparison, test_set: TestSetResult, system: str) -> dict[str, Any]:
    """Return a system's row of the table of scores."""
    row: dict[str, Any] = {
        "label": comparison.labels[system],
        "baseline": dict(zip(comparison.baselines, SYMBOLS, strict=False)).get(system, ""),
        "reason": test_set.missing.get(system, ""),
        "facts": _facts(comparison, system),
        "cells": [],
    }
    if system in test_set.scores:
        row["runs"] = len(test_set.outputs[system])
        row["cells"] = [_cell(comparison, test_set, system, metric) for metric in test_set.metrics]
    return row


def _facts(comparison: Comparison, system: str) -> list[tuple[str, float | None]]:
    """Return a system's cells in the columns before the scores: (text, number to sort by or None)."""
    order = [_sorting(column).get(system) for column in comparison.columns.values()]
    return list(zip(wording.facts(comparison, system), order, strict=True))


def _sorting(column: Mapping[str, Fact]) -> Mapping[str, float]:
    """Return what a column is sorted by: its numbers if they have one unit, before other texts; else its texts."""
    texts = {system: formats.fact(value) for system, value in column.items()}
    amounts = {system: match for system, text in texts.items() if (match := _AMOUNT.match(text))}
    if len({match["unit"] for match in amounts.values()}) == 1:
        return {system: float(match["number"].replace(",", "")) for system, match in amounts.items()}
    alphabetical = sorted(set(texts.values()))
    return {system: alphabetical.index(text) for system, text in texts.items()}


def _cell(comparison: Comparison, test_set: TestSetResult, system: str, metric: MetricInfo) -> dict[str, Any]:
    score = test_set.scores[system][metric.name]
    return {
        "score": score,
        "best": system in wording.best(test_set, metric),
        "marks": comparison.marks(test_set, system, metric.name),
        "words": "; ".join(_words(comparison, *row) for row in _compared(comparison, test_set, system, metric)),
    }


def _differences(comparison: Comparison, test_set: TestSetResult) -> list[tuple[str, str, MetricInfo, Difference]]:
    """Return (system, baseline, metric, difference) of every system from every baseline by every metric."""
    return [
        (system, *row)
        for system in comparison.systems
        for metric in test_set.metrics
        for row in _compared(comparison, test_set, system, metric)
    ]


def _compared(
    comparison: Comparison, test_set: TestSetResult, system: str, metric: MetricInfo
) -> list[tuple[str, MetricInfo, Difference]]:
    return [
        (baseline, metric, test_set.difference(system, baseline, metric.name))
        for baseline in comparison.baselines
        if baseline != system and {baseline, system} <= test_set.scores.keys()
    ]


def _words(comparison: Comparison, baseline: str, metric: MetricInfo, difference: Difference) -> str:
    start = f"against {comparison.labels[baseline]}: "
    if difference.same:
        return start + "the same outputs"
    low, high = formats.signed(difference.low), formats.signed(difference.high)
    return f"{start}{formats.signed(difference.value)} ({low} to {high}), p = {formats.probability(difference.p)}"


def _remarks(comparison: Comparison, test_set: TestSetResult) -> list[tuple[str, list[Remark]]]:
    """Return (label, remarks) of the systems that have any."""
    labels = {"": "Source and reference"} | {system: comparison.labels[system] for system in comparison.systems}
    of = {label: [r for r in test_set.remarks if r.system == system] for system, label in labels.items()}
    return [(label, remarks) for label, remarks in of.items() if remarks]
