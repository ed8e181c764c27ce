"""Pictures of a report of posnet-score: scores against parameters and speed, and what gates bring."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from msgspec import Meta, Struct

import posnet_fairseq.mixers  # noqa: F401  (registers them)
from posnet_eval.statistics.results import MetricInfo, Score
from posnet_fairseq.plots import style
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import LARGE, read_small
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.schema import convert, parse_json

# The information in queries and keys, from less to more: PosNet (Schmidt and Di Gangi, WMT 2023) Figure 2.
INFORMATION = {
    "aposnet": "position-position\n(aPosNet)",
    "rposnet": "position-position\n(rPosNet)",
    "relative": "token-position\n(relative)",
    "attention": "token-token\n(Transformer)",
    "shaw": "token-token and\ntoken-position (Shaw)",
}
# Beginnings of the titles of columns to draw scores against, and what replaces them in the label of the axis.
AGAINST = {"params": "millions of parameters", "decode": "", "train tokens": ""}
SHIFT = 0.07  # of both points of a pair, so that neither hides the other
_MISSING = (None, "", "-", "–")  # cells that say so
_MULTIPLES = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9}


class _TestSet(Struct):
    name: str
    metrics: Annotated[list[MetricInfo], Meta(min_length=1)]
    scores: dict[str, dict[str, Score]]


class _Report(Struct):
    systems: list[str]
    labels: dict[str, str]
    columns: dict[str, dict[str, Any]]
    test_sets: Annotated[list[_TestSet], Meta(min_length=1)]


def draw(path: str | Path, folder: Path, report: ProgressReporter) -> list[Path]:
    """Draw a report."""
    what = ("report.json of posnet-score", "Give the file that --out made.")
    content = convert(parse_json(read_small(path, LARGE, pipes=True), path, *what), _Report, path, *what)
    columns = {key: found for key in AGAINST if (found := _column(content, key, report))}
    gated = _gated(content)
    if not columns and not gated:
        raise UsageError(
            f"{path} has no columns of parameters or speed to draw scores against. Give posnet-score a file with "
            "columns (--config), such as params: {a: 3.1M}."
        )
    folder.mkdir(parents=True, exist_ok=True)
    gates = folder / "compare.gates"
    places = {key: folder / f"compare.{key.partition(' ')[0]}" for key in columns}
    style.refuse_foreign([file for place in (*places.values(), gates) for file in style.files_of(place)])
    paths = []
    for key, (title, figures) in columns.items():
        paths += style.save(_against(content, figures, title), places[key])
    if gated:
        paths += style.save(_gates(content, gated), gates)
    else:
        report.say(
            'there is no picture of gates: no mixer is in the report with and without a gate (a column "gate", none or '
            "gelu, and names such as shaw and shaw_gated)"
        )
    return paths


def _column(content: _Report, key: str, report: ProgressReporter) -> tuple[str, dict[str, float]] | None:
    """Return label and numbers by system of the first column whose title begins with `key`, None without."""
    for title, column in content.columns.items():
        if title.startswith(key):
            unit = match[1] if (match := re.search(r"\(([KMB])\)$", title)) else ""
            figures = {}
            for system, fact in column.items():
                number = _number(fact, unit)
                if number is not None:
                    figures[system] = number
                elif fact not in _MISSING:
                    said = f"{title}: {system} has {str(fact)!r}, which is no number such as 3.1M"
                    report.say(f"{said}; it is not in the picture")
            label = title.removesuffix(f"({unit})").rstrip().replace(key, AGAINST[key] or key)
            return (label, figures) if figures else None
    return None


def _number(fact: object, unit: str = "") -> float | None:
    """Return a cell as a number: 3100000 for 3.10M, "3,100,000", 3.1e6 and 3100000; None if it is none.

    `unit`, of the column's title as in "params (M)", is that of cells without one.
    """
    match = re.fullmatch(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?) ?([KMB]?)", str(fact).replace(",", ""))
    return float(match[1]) * _MULTIPLES[match[2] or unit] if match else None


def _panels(content: _Report, width: float) -> tuple[Figure, list[tuple[Axes, _TestSet, MetricInfo]]]:
    """Return a figure, and the axes, test set and metric of its panels."""
    pairs = [(test_set, metric) for test_set in content.test_sets for metric in test_set.metrics]
    figure, axes = style.panels(len(pairs), 2, (width, 4.6), (1, 0))
    for axis, (test_set, metric) in zip(axes, pairs, strict=True):
        axis.set(title=f"{test_set.name}: {metric.label}", ylabel=f"{metric.label}, 95% interval")
        style.plain(axis)
    return figure, [(axis, *pair) for axis, pair in zip(axes, pairs, strict=True)]


def _against(content: _Report, figures: Mapping[str, float], title: str) -> Figure:
    """Return a figure of scores with their intervals against a column, a panel for every metric of every test set."""
    unit = 1e6 if "millions" in title else 1
    figure, panels = _panels(content, 7)
    for axis, test_set, metric in panels:
        for place, (system, label) in enumerate(content.labels.items()):
            if system in test_set.scores and system in figures:
                style.draw_score(axis, place, figures[system] / unit, test_set.scores[system][metric.name], label)
        axis.set_xlabel(title)
    style.legend(figure, fontsize=8)
    return figure


def _gated(content: _Report) -> dict[str, dict[bool, str]]:
    """Return systems without and with a gate, by mixer: those of :data:`INFORMATION` that are there both ways."""
    gates: dict[str, str] = content.columns.get("gate", {})
    found: dict[str, dict[bool, str]] = {}
    archs = {get_mixer(name).arch: name for name in mixer_names()} | {"transformer": "attention"}  # as lists call it
    for system in content.systems:
        mixer = archs.get(re.sub("_(un)?gated$", "", system))
        if mixer in INFORMATION and gates.get(system) in ("none", "gelu"):
            found.setdefault(mixer, {})[gates[system] == "gelu"] = system
    return {mixer: found[mixer] for mixer in INFORMATION if len(found.get(mixer, {})) == 2}


def _gates(content: _Report, gated: Mapping[str, Mapping[bool, str]]) -> Figure:
    """Return a figure of scores with and without the gate, by the information in queries and keys."""
    figure, panels = _panels(content, 8)
    for axis, test_set, metric in panels:
        for with_gate, color, marker in ((False, style.COLORS[1], "o"), (True, style.COLORS[5], "s")):
            systems = [pair[with_gate] for pair in gated.values()]
            scores = [test_set.scores.get(system, {}).get(metric.name) for system in systems]
            there = [(place, score) for place, score in enumerate(scores) if score]
            shift = SHIFT if with_gate else -SHIFT
            axis.errorbar(
                [place + shift for place, _ in there], [score.value for _, score in there],
                yerr=list(zip(*(style.beside(score) for _, score in there), strict=True)),
                color=color, marker=marker, markersize=7, capsize=3, elinewidth=0.8, linestyle="",
                label="with the gate (gelu)" if with_gate else "without",
            )  # fmt: skip
        axis.set_xticks(range(len(gated)), [INFORMATION[mixer] for mixer in gated], fontsize=9)
        axis.set_xlabel("information in queries and keys")
        axis.legend(frameon=False, fontsize=9)
    return figure
