"""Pictures of weights and energies: matrices, a panel for every head, and their means at each distance."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from posnet_fairseq.inference.inspection import Mixing
from posnet_fairseq.plots import style

PLACES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
QUERIES = {"encoder": "query", "decoder": "query (input token)", "cross": "token that is predicted next"}
KEYS = {"encoder": "mixed token", "decoder": "mixed token", "cross": "source token"}
READABLE = 32  # tokens on an axis of a panel; of more, every tenth position is named
PANEL = 3.3  # inches
FAR = 24  # tokens that are shown on either side, at least; twice the clip distance if that is more


@dataclass(frozen=True)
class Panel:
    """A matrix, (N, M), NaN where nothing is mixed. Panels of one scale share their colors and color bar."""

    title: str
    matrix: Tensor
    scale: str


def of_heads(mixing: Mixing, matrices: Tensor, what: str) -> Figure:
    """Return a figure with the matrix of each head, (H, N, M), NaN where nothing is mixed."""
    panels = [Panel(f"head {head}", matrix, what) for head, matrix in enumerate(matrices, 1)]
    return grid(mixing, panels, min(4, len(panels)), what)


def gates(mixing: Mixing) -> Figure:
    """Return a figure with α, β and α·β of each head: PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 5-7 and 19."""
    panels = []
    for head, (weights, latent) in enumerate(zip(mixing.visible, mixing.gates, strict=True), 1):
        panels += [
            Panel(f"head {head}: α", weights, "α"),
            Panel(f"head {head}: β", latent, "β, mean of a head's features"),
            Panel(f"head {head}: α·β", weights * latent, "α·β"),
        ]
    return grid(mixing, panels, 3 if len(panels) <= 12 else 6, "weights α, latent weights β of the gate, and α·β")


def grid(mixing: Mixing, panels: Sequence[Panel], columns: int, what: str) -> Figure:
    """Return a figure of matrices."""
    height = PANEL * min(1.6, max(0.6, len(mixing.queries) / len(mixing.keys)))
    scales = {panel.scale: _scale(panels, panel.scale) for panel in panels}
    made, axes = style.panels(len(panels), columns, (PANEL, height), (1.2 + 0.8 * len(scales), 0.9))
    for place, (axis, panel) in enumerate(zip(axes, panels, strict=True)):
        colors = scales[panel.scale]
        look: dict[str, Any] = {"cmap": colors.cmap, "norm": colors.norm}
        axis.imshow(panel.matrix.numpy(), **look, aspect="auto", interpolation="nearest")
        axis.set_title(panel.title, fontsize=9)
        axis.set_facecolor(style.TAIL)
        # Tokens are named at the left and at the bottom.
        _name_tokens(axis.xaxis, mixing.keys, named=place + columns >= len(panels), rotation=90)
        _name_tokens(axis.yaxis, mixing.queries, named=place % columns == 0)
        if mixing.scaled:
            axis.plot(mixing.at.numpy(), range(len(mixing.at)), color="#D55E00", linewidth=1, linestyle="--")
    for scale, colors in reversed(scales.items()):  # each one is put to the left of the previous one
        made.colorbar(
            colors, ax=axes, label=scale, shrink=min(1, 1.2 / math.ceil(len(panels) / columns)), aspect=30, pad=0.01
        )
    title = f"{PLACES[mixing.place]}, layer {mixing.layer} ({mixing.mixer}): {what}"
    made.suptitle(f"{title}; dashed: ⌊γn⌋" if mixing.scaled else title, fontsize=11)
    made.supxlabel(KEYS[mixing.place], fontsize=10)
    made.supylabel(QUERIES[mixing.place], fontsize=10)
    return made


def _scale(panels: Iterable[Panel], name: str) -> ScalarMappable:
    """Return the colors of a scale."""
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
        texts = [name if len(name) <= 12 else f"{name[:11]}…" for name in names]
        axis.set_ticks(range(len(texts)), texts, fontsize=7, rotation=rotation)
    if not named:
        axis.set_tick_params(labelleft=False, labelbottom=False)


def profile(
    mixings: Sequence[Mixing], take: Callable[[Mixing], Tensor], what: str, has_uniform: bool = False
) -> Figure:
    """Return a figure of means over the pairs of each offset, of mixings of one place, by layer.

    With `has_uniform` it also has those of uniform weights.
    """
    made, axes = style.panels(len(mixings), 3, (3.9, 2.9), (1.6, 0.9))
    for axis, mixing in zip(axes, mixings, strict=True):
        offsets, means = mixing.by_offset(take(mixing))
        for head, line in enumerate(means):
            axis.plot(
                offsets, line, marker=".", markersize=2.5, linewidth=0.9, label=f"head {head + 1}",
                **style.line_style(head),
            )  # fmt: skip
        if has_uniform:
            axis.plot(
                offsets, mixing.by_offset(mixing.uniform)[1][0], color="#888888", linestyle=(0, (1, 1)), linewidth=1.6,
                zorder=1, label="uniform weights",
            )  # fmt: skip
        axis.set_title(f"layer {mixing.layer} ({mixing.mixer})", fontsize=9)
        style.plain(axis)
        axis.tick_params(labelsize=8)
        _frame(axis, mixing.reach, offsets[~means[0].isnan()])  # a decoder has none to the right
    of = "⌊γn⌋ - m" if mixings[0].scaled else "n - m"
    made.suptitle(f"{PLACES[mixings[0].place]}: {what}, mean over the pairs of each offset", fontsize=11)
    made.supxlabel(f"offset {of} (positive: to the left of the query)", fontsize=10)
    made.supylabel(what, fontsize=10)
    style.legend(made, fontsize=8)
    return made


def _frame(axis: Axes, reach: int | None, offsets: Tensor) -> None:
    """Limit an axis to near offsets, of which the left ones are on the left; color those that share a weight gray."""
    far = max(FAR, 2 * (reach or 0))
    low, high = max(-far, float(offsets.min())) - 0.5, min(far, float(offsets.max())) + 0.5
    axis.set_xlim(high, low)
    for begin, end in ((low, -reach), (reach, high)) if reach is not None else ():
        if begin < end:
            axis.axvspan(begin, end, color=style.TAIL, zorder=0, label="beyond the clip distance")
