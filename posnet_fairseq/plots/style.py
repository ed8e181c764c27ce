"""What all pictures have in common: colours, type, files."""

import contextlib
import warnings
from pathlib import Path

from matplotlib import font_manager, pyplot

from posnet_fairseq.files import replacing

# Told apart by people with any kind of colour vision (Okabe and Ito, 2008); where they are not enough, by dashes.
COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#D55E00", "#0072B2", "#CC79A7")
DASHES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FROM_ZERO = "Blues"  # colours of amounts
AROUND_ZERO = "PuOr"  # colours of what is negative or positive
TAIL = "#EEEEEE"  # behind what several distances share
DOTS_PER_INCH = 110

# Fonts with Chinese, Japanese and Korean characters that systems have, in the order in which they are looked for.
_MORE_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei"),
    *("WenQuanYi Zen Hei", "Droid Sans Fallback", "Noto Sans", "Arial Unicode MS"),
)


def line_style(place):
    """Colour and dashes of the line at a place, counted from 0."""
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": DASHES[place // len(COLOURS) % len(DASHES)]}


def figure(width, height, rows=1, columns=1, **options):
    """A matplotlib figure on white and its axes, (rows, columns).

    Args:
        width, height: in inches.
        rows, columns: of axes.
        options: of pyplot.subplots.
    """
    pyplot.rcParams["font.family"] = _families()
    pyplot.rcParams["svg.fonttype"] = "none"  # text stays text: small, searchable, and the reader's fonts have it all
    pyplot.rcParams["svg.hashsalt"] = "posnet"  # the same picture is the same file
    return pyplot.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained", **options)


def characters_without_font(texts):
    """Characters that no font here can draw, sorted; browsers may have one for them."""
    characters = {character for text in texts for character in text}
    missing = characters - _drawn(_families())
    if missing:
        # matplotlib remembers the fonts that were there when it first looked.
        there = {font.fname for font in font_manager.fontManager.ttflist}
        for path in set(font_manager.findSystemFonts()) - there:
            with contextlib.suppress(Exception):  # a damaged font is none
                font_manager.fontManager.addfont(path)
        missing = characters - _drawn(_families())
    return sorted(missing)


def _families():
    there = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _MORE_FONTS if name in there)]


def _drawn(families):
    fonts = (font_manager.get_font(font_manager.findfont(family)) for family in families)
    return {chr(code) for font in fonts for code in font.get_charmap()}


def plain(axis):
    """Without a box, with a light grid."""
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def save(made, path, kinds=("png", "svg")):
    """Write a figure and close it.

    Args:
        made: a matplotlib figure.
        path: without the end of its name.
        kinds: of files.

    Returns:
        the paths.
    """
    paths = [Path(f"{path}.{kind}") for kind in kinds]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # said in one sentence, see characters_without_font
        made.get_layout_engine().execute(made)  # once for all kinds
        made.set_layout_engine("none")
        for place in paths:
            metadata = {"Date": None} if place.suffix == ".svg" else None
            with replacing(place) as temporary:
                made.savefig(temporary, dpi=DOTS_PER_INCH, format=place.suffix[1:], metadata=metadata)
    pyplot.close(made)
    return paths
