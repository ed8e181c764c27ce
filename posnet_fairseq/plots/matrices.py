"""Pictures of weights and energies: a panel for every head."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from posnet_fairseq.plots import style
from posnet_fairseq.plots.inspection import Mixing

PLACES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
QUERIES = {"encoder": "query", "decoder": "query (input token)", "cross": "token that is predicted next"}
KEYS = {"encoder": "mixed token", "decoder": "mixed token", "cross": "source token"}
READABLE = 32  # tokens on an axis of a panel; of more, every tenth position is named
PANEL = 3.3  # inches


@dataclass(frozen=True)
class Panel:
    """A matrix with a title.

    Attributes:
        title: of the panel.
        matrix: (N, M), NaN where nothing is mixed.
        scale: the quantity, for the colour bar. Panels of one scale share their colours; negative values have another.
    """

    title: str
    matrix: Tensor
    scale: str


def title_of(mixing: Mixing, what: str) -> str:
    """A title such as "encoder self-attention, layer 1 (rposnet): mixing weights"."""
    return f"{PLACES[mixing.place]}, layer {mixing.layer} ({mixing.mixer}): {what}"


def of_heads(mixing: Mixing, matrices: Tensor, what: str) -> Figure:
    """A figure with the matrix of each head.

    Args:
        mixing: names the tokens.
        matrices: (H, N, M), NaN where nothing is mixed.
        what: the quantity, for title and colour bar.
    """
    panels = [Panel(f"head {head}", matrix, what) for head, matrix in enumerate(matrices, 1)]
    return grid(mixing, panels, min(4, len(panels)), what)


def gates(mixing: Mixing) -> Figure:
    """A figure with α, β and α·β of each head: PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 5-7 and 19."""
    assert mixing.weights is not None
    panels = []
    for head, (weights, latent) in enumerate(zip(mixing.weights, mixing.gates, strict=True), 1):
        panels += [
            Panel(f"head {head}: α", weights, "α"),
            Panel(f"head {head}: β", latent, "β, mean of a head's features"),
            Panel(f"head {head}: α·β", weights * latent, "α·β"),
        ]
    return grid(
        mixing, panels, 3 if len(mixing.weights) <= 4 else 6, "weights α, latent weights β of the gate, and α·β"
    )


def grid(mixing: Mixing, panels: Sequence[Panel], columns: int, what: str) -> Figure:
    """A figure of matrices.

    Args:
        mixing: names the tokens.
        panels: the matrices.
        columns: panels in a row.
        what: the quantity, for the title.
    """
    rows = math.ceil(len(panels) / columns)
    height = PANEL * min(1.6, max(0.6, len(mixing.queries) / len(mixing.keys)))
    scales = {panel.scale: _scale(panels, panel.scale) for panel in panels}
    made, axes = style.figure(1.2 + 0.8 * len(scales) + PANEL * columns, 0.9 + height * rows, rows, columns)
    for place, (axis, panel) in enumerate(zip(axes.flat, panels, strict=False)):
        colours = scales[panel.scale]
        axis.imshow(panel.matrix.numpy(), cmap=colours.cmap, norm=colours.norm, aspect="auto", interpolation="nearest")
        axis.set_title(panel.title, fontsize=9)
        axis.set_facecolor(style.TAIL)
        # Tokens are named at the left and at the bottom.
        _name_tokens(axis.xaxis, mixing.keys, named=place + columns >= len(panels), rotation=90)
        _name_tokens(axis.yaxis, mixing.queries, named=place % columns == 0)
        if mixing.scaled:
            axis.plot(mixing.at.numpy(), range(len(mixing.at)), color="#D55E00", linewidth=1, linestyle="--")
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for scale, colours in reversed(scales.items()):  # each one is put to the left of the previous one
        made.colorbar(colours, ax=axes, label=scale, shrink=min(1, 1.2 / rows), aspect=30, pad=0.01)
    more = "; dashed: ⌊γn⌋" if mixing.scaled else ""
    made.suptitle(title_of(mixing, what) + more, fontsize=11)
    made.supxlabel(KEYS[mixing.place], fontsize=10)
    made.supylabel(QUERIES[mixing.place], fontsize=10)
    return made


def _scale(panels: Iterable[Panel], name: str) -> ScalarMappable:
    """The colours of a scale."""
    values = torch.cat([panel.matrix.flatten() for panel in panels if panel.scale == name])
    values = values[values.isfinite()]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if low < 0:
        most = max(-low, high)
        return ScalarMappable(Normalize(-most, most), style.AROUND_ZERO)
    return ScalarMappable(Normalize(0.0, high or 1.0), style.FROM_ZERO)


def _name_tokens(axis: Axis, names: Sequence[str], named: bool, rotation: float = 0) -> None:
    if len(names) > READABLE:
        axis.set_major_locator(MaxNLocator(10, integer=True))
        axis.set_tick_params(labelsize=7)
    else:
        axis.set_ticks(range(len(names)), [short(name) for name in names], fontsize=7, rotation=rotation)
    if not named:
        axis.set_tick_params(labelleft=False, labelbottom=False)


def short(name: str) -> str:
    """A token, cut to the room that it has on an axis."""
    name = name.replace("$", r"\$")  # no mathematics
    return name if len(name) <= 12 else name[:11] + "…"
