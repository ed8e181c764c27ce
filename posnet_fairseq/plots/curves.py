"""Pictures of trainings, from their logs."""

import math
from dataclasses import dataclass
from pathlib import Path

from posnet_fairseq.plots import style
from posnet_fairseq.runs.training_log import records
from posnet_fairseq.shared.errors import UsageError

WARM = 0.3  # of the updates: before, losses are so high that the picture would show nothing else


@dataclass(frozen=True)
class Curve:
    """One panel.

    Attributes:
        title: of the panel.
        axis: what its height means, with its unit.
        kind: of the records in a log, ``train_inner`` or ``valid``.
        value, updates: the names of both in a record.
        noisy: whether neighbours are averaged, as batches differ.
        from_start: whether the first updates are of interest, too.
        logarithmic: whether the axis is.
    """

    title: str
    axis: str
    kind: str
    value: str
    updates: str
    noisy: bool = False
    from_start: bool = False
    logarithmic: bool = False


CURVES = {
    "loss": Curve("training loss", "bits per token", "train_inner", "nll_loss", "num_updates", noisy=True),
    "validation loss": Curve("validation loss", "bits per token", "valid", "valid_nll_loss", "valid_num_updates"),
    "perplexity": Curve(
        "validation perplexity", "perplexity", "valid", "valid_ppl", "valid_num_updates", logarithmic=True
    ),
    "rate": Curve("learning rate", "learning rate", "train_inner", "lr", "num_updates", from_start=True),
    "speed": Curve(
        "training speed", "target tokens a second", "train_inner", "wps", "num_updates", noisy=True, from_start=True
    ),
}


def logs_of(runs):
    """The logs of runs, by the names that runs have in a picture.

    Args:
        runs: folders with a train.log, or logs.

    Returns:
        {name: list of one path}.

    Raises:
        UsageError: there is none, or nothing was logged.
    """
    logs = {}
    for run in map(Path, runs):
        log = run / "train.log" if run.is_dir() else run
        if not log.is_file():
            raise UsageError(f"{log}: there is no such log. Give folders of runs, or logs of fairseq-train.")
        if next(records(log), None) is None:
            raise UsageError(f"{log} has no records of fairseq-train. They are there with --log-format json.")
        name = run.name if run.is_dir() else run.absolute().parent.name if run.name == "train.log" else run.stem
        logs[name if name not in logs else str(run)] = [log]
    return logs


def points(log, curve):
    """Updates and values of a log; of what was trained twice, the last."""
    found = {
        values[curve.updates]: values[curve.value]
        for kind, values in records(log)
        if kind == curve.kind and isinstance(values.get(curve.value), float)
    }
    return sorted(found), [found[key] for key in sorted(found)]


def smooth(values, width):
    """Means of so many neighbours."""
    return [
        sum(values[max(0, i - width + 1) : i + 1]) / len(values[max(0, i - width + 1) : i + 1])
        for i in range(len(values))
    ]


def draw(logs, path, names=tuple(CURVES), kinds=style.KINDS):
    """Draw trainings.

    Args:
        logs: {system: logs of its runs}.
        path: of the picture, without the end of its name.
        names: of :data:`CURVES`.
        kinds: of files.

    Returns:
        the paths.
    """
    style.refuse_foreign(style.files_of(path, kinds))
    columns = 2 if len(names) < 5 else 3
    rows = math.ceil(len(names) / columns)
    figure, axes = style.figure(6 * columns, 5.5 if rows == 1 else 4.2 * rows, rows, columns)
    ends = {}
    for axis, curve in zip(axes.flat, (CURVES[name] for name in names), strict=False):
        for place, (system, paths) in enumerate(logs.items()):
            for number, log in enumerate(paths):
                updates, values = points(log, curve)
                if curve.noisy:
                    values = smooth(values, max(1, len(values) // 20))
                label = system if number == 0 else None
                axis.plot(updates, values, **style.line_style(place), linewidth=1.4, alpha=0.9, label=label)
                if curve.kind == "valid" and values:
                    ends.setdefault(system, []).append(values[-1])
        _frame(axis, curve)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    # The legend has the order of the curves' ends.
    handles = dict(zip(*reversed(axes[0, 0].get_legend_handles_labels()), strict=True))
    ordered = sorted(handles, key=lambda system: -max(ends.get(system, [math.inf])))
    figure.legend([handles[name] for name in ordered], ordered, loc="outside right upper", frameon=False, fontsize=9)
    return style.save(figure, path, kinds)


def _frame(axis, curve):
    axis.set(title=curve.title, xlabel="updates", ylabel=curve.axis)
    if curve.logarithmic:
        axis.set_yscale("log")
    axis.xaxis.get_major_locator().set_params(integer=True)
    style.plain(axis)
    lines = [line for line in axis.lines if len(line.get_xdata())]
    if not lines:
        return
    last = max(line.get_xdata()[-1] for line in lines)
    axis.set_xlim(0, last * 1.01)
    values = [(x, y) for line in lines for x, y in zip(*line.get_data(), strict=True) if math.isfinite(y)]
    seen = [y for x, y in values if x >= WARM * last]
    if curve.from_start or not seen:
        return
    if curve.logarithmic:
        axis.set_ylim(min(seen) / 1.1, max(seen) * 1.1)
        return
    margin = 0.05 * (max(seen) - min(seen)) or 0.1
    axis.set_ylim(min(seen) - margin, max(seen) + margin)
