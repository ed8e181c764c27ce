"""The HTML page of a comparison, which needs no network and no other file.

Imports matplotlib and jinja2; commands import this module only when a page is written.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from posnet_eval.inputs.plan import SYMBOLS, Fact
from posnet_eval.report import plots, wording
from posnet_eval.report.browser import browsable
from posnet_eval.statistics.results import SIGNIFICANT, Comparison, TestSetResult

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
    for function in (wording.decimal, wording.signed, wording.probability, wording.listed):
        environment.filters[function.__name__] = function
    environment.filters["label"] = comparison.labels.get
    return environment.get_template("page.html").render(
        comparison=comparison,
        wording=wording,
        baselines=wording.baselines(comparison),
        symbols=dict(zip(comparison.baselines, SYMBOLS, strict=False)),
        order=[_order(column) for column in comparison.columns.values()],
        interval=wording.interval(comparison),
        significant=SIGNIFICANT,
        sections=[_section(comparison, test_set) for test_set in comparison.test_sets],
    )


def _section(comparison: Comparison, test_set: TestSetResult) -> dict[str, Any]:
    """Return the template's values for a test set."""
    scored = [system for system in comparison.systems if system in test_set.scores]
    labels = {"": "Source and reference"} | {system: comparison.labels[system] for system in comparison.systems}
    remarks = {system: [remark for remark in test_set.remarks if remark.system == system] for system in labels}
    section: dict[str, Any] = {
        "test_set": test_set,
        "compared": {
            (system, metric.name): [
                (baseline, test_set.difference(system, baseline, metric.name))
                for baseline in comparison.baselines
                if baseline != system and baseline in scored
            ]
            for system in scored
            for metric in test_set.metrics
        },
        "remarks": [(labels[system], found) for system, found in remarks.items() if found],
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


def _order(column: Mapping[str, Fact]) -> Mapping[str, float]:
    """Return what a column is sorted by: its numbers if they have one unit, before other texts; else its texts."""
    texts = {system: wording.fact(value) for system, value in column.items()}
    amounts = {system: match for system, text in texts.items() if (match := _AMOUNT.match(text))}
    if len({match["unit"] for match in amounts.values()}) == 1:
        return {system: float(match["number"].replace(",", "")) for system, match in amounts.items()}
    alphabetical = sorted(set(texts.values()))
    return {system: alphabetical.index(text) for system, text in texts.items()}
