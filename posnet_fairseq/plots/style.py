"""What all pictures have in common: colours, type, files."""

import contextlib
import warnings
from pathlib import Path

from matplotlib import font_manager, pyplot

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_place, replacing

KINDS = ("png", "svg")
# What the files of posnet-plot say of where they come from, near their beginning.
MAKER = "posnet-plot"
_MARKS = {
    ".png": f"Software\0{MAKER}".encode(),
    ".svg": f"<dc:title>{MAKER}</dc:title>".encode(),
    ".html": f'<meta name="generator" content="{MAKER}">'.encode(),
}
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


def files_of(path, kinds=KINDS):
    """The paths of a picture.

    Args:
        path: without the end of its name.
        kinds: of files.
    """
    return [Path(f"{path}.{kind}") for kind in kinds]


def refuse_foreign(paths):
    """Refuse to replace what posnet-plot did not make. Done before anything is drawn.

    Args:
        paths: of pictures and pages.

    Raises:
        UsageError: there is such a file; or see :func:`posnet_fairseq.shared.files.check_place`.
    """
    for path in paths:
        check_place(path)
        if path.is_file():
            with path.open("rb") as file:
                begin = file.read(4096)
            if begin and _MARKS[path.suffix] not in begin:
                raise UsageError(
                    f"{path} is there, and this posnet-plot did not make it. Move it away, or choose another --out."
                )


def save(made, path, kinds=KINDS):
    """Write a figure and close it.

    Args:
        made: a matplotlib figure.
        path: without the end of its name.
        kinds: of files.

    Returns:
        the paths.
    """
    paths = files_of(path, kinds)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # said in one sentence, see characters_without_font
        made.get_layout_engine().execute(made)  # once for all kinds
        made.set_layout_engine("none")
        for place in paths:
            metadata = {"Creator": MAKER, "Date": None} if place.suffix == ".svg" else {"Software": MAKER}
            with replacing(place) as temporary:
                made.savefig(temporary, dpi=DOTS_PER_INCH, format=place.suffix[1:], metadata=metadata)
    pyplot.close(made)
    return paths
