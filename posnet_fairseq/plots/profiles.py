"""Pictures of means at each distance: a panel for every layer, a line for every head."""

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from posnet_fairseq.plots import style
from posnet_fairseq.plots.inspection import Mixing
from posnet_fairseq.plots.matrices import PLACES

FAR = 24  # tokens that are shown on either side, at least; twice the clip distance if that is more


def profile(mixings: Sequence[Mixing], take: Callable[[Mixing], Tensor], what: str) -> Figure:
    """A figure of means over the pairs of each distance.

    Args:
        mixings: of one place, by layer.
        take: returns the numbers of a mixing, (H, N, M).
        what: the quantity, for the title and the axis.
    """
    columns = min(3, len(mixings))
    rows = math.ceil(len(mixings) / columns)
    made, axes = style.figure(1.6 + 3.9 * columns, 0.9 + 2.9 * rows, rows, columns)
    for axis, mixing in zip(axes.flat, mixings, strict=False):
        distances, means = mixing.by_distance(take(mixing))
        for head, line in enumerate(means):
            axis.plot(
                distances, line, marker=".", markersize=2.5, linewidth=0.9, label=f"head {head + 1}",
                **style.line_style(head),
            )  # fmt: skip
        axis.set_title(f"layer {mixing.layer} ({mixing.mixer})", fontsize=9)
        style.plain(axis)
        axis.tick_params(labelsize=8)
        _frame(axis, mixing.reach, distances)
    for axis in axes.flat[len(mixings) :]:
        axis.set_visible(False)
    of = "m - ⌊γn⌋" if mixings[0].scaled else "m - n"
    made.suptitle(f"{PLACES[mixings[0].place]}: {what}, mean over the pairs of each distance", fontsize=11)
    made.supxlabel(f"distance {of} (left of the query: negative)", fontsize=10)
    made.supylabel(what, fontsize=10)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    made.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=8)
    return made


def _frame(axis: Axes, reach: int | None, distances: Tensor) -> None:
    """Limit an axis to near distances, and colour those that share a weight grey."""
    far = max(FAR, 2 * (reach or 0))
    low, high = max(-far, float(distances.min())) - 0.5, min(far, float(distances.max())) + 0.5
    axis.set_xlim(low, high)
    for begin, end in ((low, -reach), (reach, high)) if reach is not None else ():
        if begin < end:
            axis.axvspan(begin, end, color=style.TAIL, zorder=0, label="beyond the clip distance" if end < 0 else None)
