"""Colors, fonts and files of all pictures."""

import contextlib
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import font_manager, pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_place, replacing

KINDS = ("png", "svg")
# The mark of posnet-plot near the beginning of its files.
MAKER = "posnet-plot"
_MARKS = {
    ".png": f"Software\0{MAKER}".encode(),
    ".svg": f"<dc:title>{MAKER}</dc:title>".encode(),
    ".md": f"<!-- {MAKER} -->".encode(),
    ".html": f'<meta name="generator" content="{MAKER}">'.encode(),
}
# Told apart by people with any kind of color vision (Okabe and Ito, 2008); where they are not enough, by dashes.
COLORS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#D55E00", "#0072B2", "#CC79A7")
DASHES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FROM_ZERO = "Blues"  # colors of amounts
AROUND_ZERO = "PuOr"  # colors of negative and positive numbers
TAIL = "#EEEEEE"  # background of distances that share a weight
DOTS_PER_INCH = 110

# Fonts with Chinese, Japanese and Korean characters that are common on Linux, the preferred ones first.
_MORE_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei"),
    *("WenQuanYi Zen Hei", "Droid Sans Fallback", "Noto Sans", "Arial Unicode MS"),
)


def line_style(place: int) -> dict[str, Any]:
    """Return color and dashes of the line at a place, counted from 0."""
    return {"color": COLORS[place % len(COLORS)], "linestyle": DASHES[place // len(COLORS) % len(DASHES)]}


def draw_score(axis: Axes, place: int, x: float, score: Any, label: str) -> None:
    """Draw a score, with ``value``, ``low`` and ``high``, at x in color and marker of a place, counted from 0."""
    _, caps, bars = axis.errorbar(
        x, score.value, yerr=[[part] for part in beside(score)], color=COLORS[place % len(COLORS)],
        marker=MARKERS[place // len(COLORS) % len(MARKERS)], linestyle="", capsize=2, elinewidth=0.8, label=label,
    )  # fmt: skip
    for part in (*caps, *bars):  # they cross other points
        part.set_alpha(0.35)


def beside(score: Any) -> tuple[float, float]:
    """Return the parts of a score's interval below and above it."""
    return max(0.0, score.value - score.low), max(0.0, score.high - score.value)


def panels(
    count: int, columns: int, size: tuple[float, float], more: tuple[float, float] = (0, 0)
) -> tuple[Figure, list[Axes]]:
    """Return a figure and the axes of its panels, whose size is in inches; it has more of them beside and above."""
    pyplot.rcParams["font.family"] = _families()
    pyplot.rcParams["svg.fonttype"] = "none"  # text stays text: small, searchable, in the reader's fonts
    pyplot.rcParams["text.parse_math"] = False  # a dollar sign in a label is one
    pyplot.rcParams["svg.hashsalt"] = "posnet"  # equal pictures are equal files
    columns = min(columns, count)
    rows = -(-count // columns)
    whole = more[0] + size[0] * columns, more[1] + size[1] * rows
    made, axes = pyplot.subplots(rows, columns, figsize=whole, squeeze=False, layout="constrained")
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    return made, list(axes.flat[:count])


def legend(made: Figure, order: Sequence[str] | None = None, fontsize: int = 9) -> None:
    """Put a legend of all axes beside them, its labels in the order given, by default as they were drawn."""
    handles: dict[str, Any] = {}
    for axis in made.axes:
        handles = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True)) | handles
    labels = [label for label in order or handles if label in handles]
    made.legend(
        [handles[label] for label in labels], labels, loc="outside right upper", frameon=False, fontsize=fontsize
    )


def characters_without_font(texts: Iterable[str]) -> list[str]:
    """Return characters that no font of this machine can draw, sorted; a browser elsewhere may have one."""
    characters = {character for text in texts for character in text}
    missing = characters - _drawn()
    if missing:
        # matplotlib keeps a list of fonts from its first start; later ones are added here.
        there = {font.fname for font in font_manager.fontManager.ttflist}
        for path in set(font_manager.findSystemFonts()) - there:
            with contextlib.suppress(Exception):  # a damaged font is left out
                font_manager.fontManager.addfont(path)
        missing = characters - _drawn()
    return sorted(missing)


def _families() -> list[str]:
    there = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _MORE_FONTS if name in there)]


def _drawn() -> set[str]:
    fonts = (font_manager.get_font(font_manager.findfont(family)) for family in _families())
    return {chr(code) for font in fonts for code in font.get_charmap()}


def plain(axis: Axes) -> None:
    """Replace the box around axes by a light grid."""
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def files_of(path: str | Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """Return the paths of a picture, which is given without its suffix."""
    return [Path(f"{path}.{kind}") for kind in kinds]


def refuse_foreign(paths: Iterable[Path]) -> None:
    """Refuse to replace files that posnet-plot did not make. Called before anything is drawn."""
    for path in paths:
        check_place(path)
        if path.is_file():
            with path.open("rb") as file:
                begin = file.read(4096)
            if begin and _MARKS[path.suffix] not in begin:
                raise UsageError(
                    f"{path} is there, and this posnet-plot did not make it. Move it away, or choose another --out."
                )


def save(made: Figure, path: str | Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """Write a figure and close it."""
    paths = files_of(path, kinds)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # reported once: characters_without_font
        if engine := made.get_layout_engine():
            engine.execute(made)  # once for all kinds
        made.set_layout_engine(None)  # else matplotlib draws every file twice
        for place in paths:
            metadata = {"Creator": MAKER, "Date": None} if place.suffix == ".svg" else {"Software": MAKER}
            with replacing(place) as temporary:
                made.savefig(temporary, dpi=DOTS_PER_INCH, format=place.suffix[1:], metadata=metadata)
    pyplot.close(made)
    return paths
