"""Pictures of trainings: training and validation loss of all runs of a comparison."""

import math
from pathlib import Path

from posnet_fairseq.files import replacing
from posnet_fairseq.training_log import records

# Told apart by people with any kind of colour vision (Okabe and Ito, 2008); with more systems than colours, by lines.
COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#D55E00", "#0072B2", "#CC79A7")
DASHES = ("-", "--", ":", "-.")
WARM = 0.3  # of the updates: before, losses are so high that the picture would show nothing else
PANELS = {"train_inner": ("training loss", "nll_loss", "num_updates")}
PANELS["valid"] = ("validation loss", "valid_nll_loss", "valid_num_updates")


def points(log, kind):
    """Updates and losses (bits per token, without label smoothing) of a log; of what was trained twice, the last."""
    _, loss, updates = PANELS[kind]
    found = {values[updates]: values[loss] for of, values in records(log) if of == kind and loss in values}
    return sorted(found), [found[key] for key in sorted(found)]


def smooth(values, width):
    """Means of so many neighbours: batches differ."""
    return [
        sum(values[max(0, i - width + 1) : i + 1]) / len(values[max(0, i - width + 1) : i + 1])
        for i in range(len(values))
    ]


def draw(logs, folder):
    """Write curves.png.

    Args:
        logs: {system: logs of its runs}.
        folder: where to.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(12, 5.5), layout="constrained")
    ends = {}
    for place, (system, paths) in enumerate(logs.items()):
        style = {"color": COLOURS[place % len(COLOURS)], "linestyle": DASHES[place // len(COLOURS) % len(DASHES)]}
        for axis, kind in zip(axes, PANELS, strict=True):
            for number, path in enumerate(paths):
                updates, losses = points(path, kind)
                if kind == "train_inner":
                    losses = smooth(losses, max(1, len(losses) // 20))
                label = system if number == 0 else None
                axis.plot(updates, losses, **style, linewidth=1.4, alpha=0.9, label=label)
                if kind == "valid" and losses:
                    ends.setdefault(system, []).append(losses[-1])
    for axis, kind in zip(axes, PANELS, strict=True):
        _frame(axis, PANELS[kind][0])
    # The legend has the order of the curves' ends.
    handles = dict(zip(*reversed(axes[1].get_legend_handles_labels()), strict=True))
    names = sorted(handles, key=lambda name: -sum(ends.get(name, [0])) / len(ends.get(name, [0])))
    figure.legend([handles[name] for name in names], names, loc="outside right upper", frameon=False, fontsize=9)
    with replacing(Path(folder) / "curves.png") as temporary:
        figure.savefig(temporary, dpi=130, format="png")
    pyplot.close(figure)


def _frame(axis, title):
    axis.set(title=title, xlabel="updates", ylabel="bits per token")
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    lines = [line for line in axis.lines if len(line.get_xdata())]
    if not lines:
        return
    last = max(line.get_xdata()[-1] for line in lines)
    values = [(x, y) for line in lines for x, y in zip(*line.get_data(), strict=True) if math.isfinite(y)]
    seen = [y for x, y in values if x >= WARM * last]
    if not seen:
        return
    margin = 0.05 * (max(seen) - min(seen)) or 0.1
    axis.set_ylim(min(seen) - margin, max(seen) + margin)
    axis.set_xlim(0, last * 1.01)
