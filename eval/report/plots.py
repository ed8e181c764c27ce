"""Plots of a comparison as SVG elements for a page, with text as text and colors for color-blind readers."""

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from matplotlib import rc_context, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from posnet_eval.statistics.results import Bucket, Comparison, MetricInfo, TestSetResult

WIDTH = 340  # pixels, so that a plot fits on a phone
LONGEST, LONGEST_GROUP = 46, 15  # characters of a label
MOST_COUNTS = 8  # bars that have room for a number above
DARK, GREY, LIGHT = "#222222", "#6b6b6b", "#d0d0d0"
# Okabe and Ito's colors, less those too light for lines.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#000000", "#B8860B")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("--", ":")  # of the first baseline, of the second
OTHERS = {"color": "#bdbdbd", "linewidth": 1.2, "zorder": 1}  # lines of systems without a color of their own
UNSTYLED = {"color": GREY, "marker": "o"}  # their scores

# Pixels of a page are units of SVG, which matplotlib calls points. The page sets the font.
_STYLE: list[str | Path | dict[str, Any]] = [
    "default",
    {
        "svg.fonttype": "none",
        "font.size": 12,
        "text.color": DARK,
        "axes.edgecolor": GREY,
        "axes.labelcolor": DARK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": DARK,
        "ytick.color": DARK,
    },
]
_FONT_FAMILY = re.compile(r"font-family: [^;]*; ")


@style.context(_STYLE)
def intervals(
    comparison: Comparison, test_set: TestSetResult, metric: MetricInfo, styles: Mapping[str, dict[str, Any]]
) -> str:
    """Return an SVG element with score, 95% interval and runs of each system, and baselines as vertical lines."""
    systems = list(test_set.scores)
    row, below, above = 36, 30, 0.85  # above: rows over the first, for its name
    height = row * (len(systems) - 0.5 + above)
    figure, (axes,) = _figure(height + below, [(6, below, WIDTH - 12, height)])
    for dashes, baseline in zip(DASHES, comparison.baselines, strict=False):
        if baseline in systems:
            axes.axvline(test_set.scores[baseline][metric.name].value, color=GREY, linestyle=dashes, linewidth=1)
    for y, system in enumerate(systems):
        score = test_set.scores[system][metric.name]
        color, marker = (styles.get(system, UNSTYLED)[key] for key in ("color", "marker"))
        axes.plot([score.low, score.high], [y, y], color=color, linewidth=2.5, solid_capstyle="butt")
        if len(score.runs) > 1:
            axes.plot(score.runs, [y] * len(score.runs), "|", color=color, markersize=11, markeredgewidth=1)
        axes.plot([score.value], [y], marker, color=color, markersize=7)
        # Above its interval, so that long names have room.
        label = "".join(c if c.isprintable() else "\ufffd" for c in comparison.labels[system])  # XML has no others
        label = _shortened(label, LONGEST)
        axes.text(0.005, y - 0.26, label, va="bottom", parse_math=False, transform=axes.get_yaxis_transform())
    axes.set_ylim(len(systems) - 0.5, -above)
    axes.margins(x=0.06)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="x", color="#eeeeee")
    axes.set_axisbelow(True)
    scores = {comparison.labels[system]: test_set.scores[system][metric.name] for system in systems}
    words = "; ".join(f"{label} {one.value:.1f} ({one.low:.1f} to {one.high:.1f})" for label, one in scores.items())
    return _inline(figure, f"intervals {test_set.name} {metric.name}", f"{metric.label} with 95% intervals: {words}")


def line_styles(comparison: Comparison) -> dict[str, dict[str, Any]]:
    """Return {system: arguments for matplotlib} of systems with a color, the same one in all plots of a page.

    Of more systems than colors, baselines and those with the best scores by the first metric on the first test set.
    """
    test_set = comparison.test_sets[0]
    metric = test_set.metrics[0]

    def rank(system: str) -> tuple[bool, bool, float]:
        scored = system in test_set.scores
        value = test_set.scores[system][metric.name].value if scored else 0.0
        return system not in comparison.baselines, not scored, -value if metric.higher_is_better else value

    chosen = set(sorted(comparison.systems, key=rank)[: len(COLORS)])
    colored = [system for system in comparison.systems if system in chosen]
    return {
        system: {"color": color, "marker": marker, "markersize": 6, "linewidth": 1.8, "zorder": 2}
        for system, color, marker in zip(colored, COLORS, MARKERS, strict=False)
    }


@style.context(_STYLE)
def swatch(test_set: TestSetResult, system: str, styles: Mapping[str, dict[str, Any]], by: str) -> str:
    """Return an SVG element with a piece of a system's line in :func:`by_bucket`, for a legend."""
    figure, (axes,) = _figure(14, [(0, 0, 34, 14)], width=34)
    axes.plot([0, 1, 2], [0, 0, 0], markevery=[1], **_line(styles, system, by))
    axes.set_axis_off()
    return _inline(figure, f"swatch {by} {test_set.name} {system}", "")


@style.context(_STYLE)
def by_bucket(
    test_set: TestSetResult,
    metric: MetricInfo,
    styles: Mapping[str, dict[str, Any]],
    by: str,
    buckets: Sequence[Bucket],
) -> str:
    """Return an SVG element with scores of buckets and their sizes above, by length (lines) or by group (markers)."""
    labels = [_shortened(bucket.label, LONGEST_GROUP) for bucket in buckets]
    longest = max(map(len, labels))
    slants = len(buckets) > 5 or longest > 5
    slanted: dict[str, Any] = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"} if slants else {}
    left, below, lines, gap, bars = 40, 20 + 7 * longest if slants else 24, 190, 14, 60
    height = below + lines + gap + bars
    place = WIDTH - left - 4
    figure, (low, high) = _figure(height, [(left, below, place, lines), (left, below + lines + gap, place, bars)])
    xs = range(len(buckets))
    for system in test_set.scores:
        ys = [bucket.scores[system][metric.name] for bucket in buckets]
        low.plot(xs, ys, **_line(styles, system, by))
    low.set_xlim(-0.5, len(buckets) - 0.5)
    low.set_xticks(xs, labels, fontsize=11, parse_math=False, **slanted)
    low.yaxis.set_major_locator(MaxNLocator(5))
    low.grid(axis="y", color="#eeeeee")
    high.bar(xs, [bucket.size for bucket in buckets], color=LIGHT, width=0.8)
    for x, bucket in enumerate(buckets if len(buckets) <= MOST_COUNTS else ()):
        high.text(x, bucket.size, f"{bucket.size:,}", va="bottom", ha="center", fontsize=11, color=GREY)
    high.set_xlim(low.get_xlim())
    high.set_ylim(0, 1.35 * max(bucket.size for bucket in buckets))
    high.set_axis_off()
    salt = f"by {by} {test_set.name} {metric.name}"
    return _inline(figure, salt, f"{metric.label} of segments by {by}, in numbers below")


def _line(styles: Mapping[str, dict[str, Any]], system: str, by: str) -> dict[str, Any]:
    """Return how a system is drawn: groups have no order, so there is no line between them."""
    line = styles.get(system, OTHERS)
    return line if by == "length" else {"marker": "o"} | line | {"linestyle": ""}


def _shortened(label: str, most: int) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"


def _figure(
    height: float, boxes: Sequence[tuple[float, float, float, float]], width: float = WIDTH
) -> tuple[Figure, list[Axes]]:
    """Return a figure and axes at (left, bottom, width, height), all in pixels."""
    figure = Figure(figsize=(width / 72, height / 72))
    figure.patch.set_visible(False)
    places = [(left / width, bottom / height, w / width, h / height) for left, bottom, w, h in boxes]
    axes = [figure.add_axes(place) for place in places]
    for one in axes:
        one.patch.set_visible(False)
    return figure, axes


def _inline(figure: Figure, salt: str, label: str) -> str:
    """Return a figure as an SVG element that can share a page with others, by a salt for its identifiers."""
    file = io.StringIO()
    with rc_context({"svg.hashsalt": salt}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the browser has it
        figure.savefig(file, format="svg")
    root = ElementTree.fromstring(file.getvalue())
    for element in root.iter():
        _simplify(element)
    x, y, width, height = root.attrib["viewBox"].split()
    said = {"role": "img", "aria-label": label} if label else {"aria-hidden": "true"}
    root.attrib = {"viewBox": f"{x} {y} {width} {height}", "width": width, "height": height, **said}
    return ElementTree.tostring(root, encoding="unicode")


def _simplify(element: ElementTree.Element) -> None:
    """Remove date, namespaces, fonts, unused identifiers, and the style sheet, which would apply to the whole page."""
    for child in list(element):
        if _plain(child.tag) in ("metadata", "style"):
            element.remove(child)
    element.tag = _plain(element.tag)
    element.tail = None
    if element.tag != "text":
        element.text = None
    attributes = {_plain(name): value for name, value in element.attrib.items()}
    if element.tag == "g":
        attributes.pop("id", None)
    if element.tag == "path":
        attributes["d"] = " ".join(attributes["d"].split())
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]
    if "style" in attributes:
        attributes["style"] = _FONT_FAMILY.sub("", attributes["style"])
    element.attrib = attributes


def _plain(name: str) -> str:
    return name.rpartition("}")[2]
