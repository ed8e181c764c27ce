"""Pictures of a report of posnet-score: scores against parameters and speed, and what gates bring."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import posnet_fairseq.mixers  # noqa: F401  (registers them)
from posnet_fairseq.plots import style
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import read_lines
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.schema import decimal

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
_MULTIPLES = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9}


def draw(path: str | Path, folder: Path, report: ProgressReporter) -> list[Path]:
    """Draw a report.

    Args:
        path: of a report.json.
        folder: of the pictures, which is made.
        report: where missing pictures are explained.

    Returns:
        The paths of the pictures.

    Raises:
        UsageError: the file is no report, or it has no column that could be an axis.
    """
    content = _read(path)
    columns = {key: found for key in AGAINST if (found := _column(content, key))}
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


def _read(path: str | Path) -> dict[str, Any]:
    text = "\n".join(read_lines(path, small=True))
    try:
        content = json.loads(text)
        whole = all(test_set["metrics"] and test_set["scores"] for test_set in content["test_sets"])
        if not (whole and content["test_sets"] and content["labels"]) or not isinstance(content["columns"], dict):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path} is no report.json of posnet-score. Give the file that --out made.") from error
    return content


def _column(content: Mapping[str, Any], key: str) -> tuple[str, dict[str, float]] | None:
    """Label and numbers by system of the first column whose title begins with `key`; None if there are no numbers."""
    for title, column in content["columns"].items():
        if title.startswith(key):
            figures = {system: number for system, fact in column.items() if (number := _number(fact)) is not None}
            return (title.replace(key, AGAINST[key] or key), figures) if figures else None
    return None


def _number(fact: object) -> float | None:
    """A cell as a number: 3100000 for 3.10M, "3,100,000" and 3100000; None if it is none."""
    match = re.fullmatch(r"([\d.]+) ?([KMB]?)", str(fact).replace(",", ""))
    try:
        return float(decimal(match.group(1))) * _MULTIPLES[match.group(2)] if match else None
    except ValueError:
        return None


def _metrics(content: Mapping[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Test set and metric of every panel."""
    return [(test_set, metric) for test_set in content["test_sets"] for metric in test_set["metrics"]]


def _panels(
    content: Mapping[str, Any], width: float
) -> tuple[Figure, Iterator[tuple[Axes, tuple[dict[str, Any], dict[str, Any]]]]]:
    """A figure, and the axes, test set and metric of its panels."""
    pairs = _metrics(content)
    columns = min(2, len(pairs))
    rows = -(-len(pairs) // columns)
    figure, axes = style.figure(1 + width * columns, 4.6 * rows, rows, columns)
    for axis in axes.flat[len(pairs) :]:
        axis.set_visible(False)
    return figure, zip(axes.flat, pairs, strict=False)


def _against(content: Mapping[str, Any], figures: Mapping[str, float], title: str) -> Figure:
    """A figure of scores with their intervals against a column, a panel for every metric of every test set."""
    millions = "millions" in title
    figure, panels = _panels(content, 7)
    for axis, (test_set, metric) in panels:
        for place, (system, label) in enumerate(content["labels"].items()):
            if system not in test_set["scores"] or system not in figures:
                continue
            score = test_set["scores"][system][metric["name"]]
            axis.errorbar(
                figures[system] / (1e6 if millions else 1), score["value"],
                yerr=[[part] for part in _beside(score)],
                color=style.COLOURS[place % len(style.COLOURS)],
                marker=style.MARKERS[place // len(style.COLOURS) % len(style.MARKERS)],
                markersize=6, capsize=2, elinewidth=0.8, linestyle="", label=label,
            )  # fmt: skip
        axis.set(
            title=f"{test_set['name']}: {metric['label']}", xlabel=title, ylabel=f"{metric['label']}, 95% interval"
        )
        style.plain(axis)
    known: dict[str, Any] = {}
    for axis in figure.axes:
        known |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(known.values(), known.keys(), loc="outside right upper", frameon=False, fontsize=8)
    return figure


def _beside(score: Mapping[str, float]) -> tuple[float, float]:
    """The parts of a score's interval below and above it."""
    return max(0.0, score["value"] - score["low"]), max(0.0, score["high"] - score["value"])


def _gated(content: Mapping[str, Any]) -> dict[str, dict[bool, str]]:
    """Systems without and with a gate, by mixer: the mixers of :data:`INFORMATION` that the report has both ways."""
    gates: dict[str, str] = content["columns"].get("gate", {})
    found: dict[str, dict[bool, str]] = {}
    archs = {get_mixer(name).arch: name for name in mixer_names()}
    for system in content["systems"]:
        mixer = archs.get(re.sub("_(un)?gated$", "", system))
        if mixer in INFORMATION and gates.get(system) in ("none", "gelu"):
            found.setdefault(mixer, {})[gates[system] == "gelu"] = system
    return {mixer: found[mixer] for mixer in INFORMATION if len(found.get(mixer, {})) == 2}


def _gates(content: Mapping[str, Any], gated: Mapping[str, Mapping[bool, str]]) -> Figure:
    """A figure of scores with and without the gate, by the information in queries and keys."""
    figure, panels = _panels(content, 8)
    for axis, (test_set, metric) in panels:
        for with_gate, colour, marker in ((False, style.COLOURS[1], "o"), (True, style.COLOURS[5], "s")):
            systems = [pair[with_gate] for pair in gated.values()]
            scores = [test_set["scores"].get(system, {}).get(metric["name"]) for system in systems]
            there = [(place, score) for place, score in enumerate(scores) if score]
            shift = SHIFT if with_gate else -SHIFT
            axis.errorbar(
                [place + shift for place, _ in there], [score["value"] for _, score in there],
                yerr=list(zip(*(_beside(score) for _, score in there), strict=True)),
                color=colour, marker=marker, markersize=7, capsize=3, elinewidth=0.8, linestyle="",
                label="with the gate (gelu)" if with_gate else "without",
            )  # fmt: skip
        axis.set_xticks(range(len(gated)), [INFORMATION[mixer] for mixer in gated], fontsize=9)
        axis.set(title=f"{test_set['name']}: {metric['label']}", ylabel=f"{metric['label']}, 95% interval")
        axis.set_xlabel("information in queries and keys")
        style.plain(axis)
        axis.legend(frameon=False, fontsize=9)
    return figure
