"""Pictures of trainings, from their logs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import AutoLocator, LogFormatter

from posnet_fairseq.plots import style
from posnet_fairseq.runs.training import records, updates_of
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import shown

WARM = 0.3  # the axis is scaled for the updates from here on: earlier losses are too high to show the others


@dataclass(frozen=True)
class Curve:
    """One panel, of the records of a kind in a log."""

    title: str
    axis: str  # label, with its unit
    kind: str  # train_inner or valid
    value: str  # key of a record
    noisy: bool = False  # neighbors are averaged, as batches differ
    from_start: bool = False  # the axis is scaled for the first updates, too
    logarithmic: bool = False


CURVES = {
    "loss": Curve("training loss", "bits per token", "train_inner", "nll_loss", noisy=True),
    "validation loss": Curve("validation loss", "bits per token", "valid", "valid_nll_loss"),
    "perplexity": Curve("validation perplexity", "perplexity", "valid", "valid_ppl", logarithmic=True),
    "rate": Curve("learning rate", "learning rate", "train_inner", "lr", from_start=True),
    "speed": Curve("training speed", "target tokens a second", "train_inner", "wps", noisy=True, from_start=True),
}


def logs_of(runs: Iterable[str | Path]) -> dict[str, list[Path]]:
    """Return the logs of runs, folders with a train.log or logs, by the names of the runs in a picture."""
    logs: dict[str, list[Path]] = {}
    for run in map(Path, runs):
        log = run / "train.log" if run.is_dir() else run
        if not log.is_file():
            raise UsageError(f"{log}: there is no such log. Give folders of runs, or logs of fairseq-train.")
        if next(records(log), None) is None:
            raise UsageError(f"{log} has no records of fairseq-train. They are there with --log-format json.")
        whole = run.absolute()
        name = whole.name if run.is_dir() else whole.parent.name if whole.name == "train.log" else whole.stem
        logs[shown(name if shown(name) not in logs else run)] = [log]
    return logs


def points(log: Path, curve: Curve) -> tuple[list[float], list[float]]:
    """Return updates and values of a log; of updates that were trained twice, the later values."""
    found = {
        updates_of(kind, values): values[curve.value]
        for kind, values in records(log)
        if kind == curve.kind and isinstance(values.get(curve.value), float)
    }
    return sorted(found), [found[key] for key in sorted(found)]


def smooth(values: Sequence[float], width: int) -> list[float]:
    """Return means of each value and those before it, `width` values in all."""
    windows = (values[max(0, end - width) : end] for end in range(1, len(values) + 1))
    return [sum(window) / len(window) for window in windows]


def draw(
    logs: Mapping[str, Sequence[Path]],
    path: str | Path,
    names: Sequence[str] = tuple(CURVES),
    kinds: Sequence[str] = style.KINDS,
) -> list[Path]:
    """Draw logs of the runs of each system, and return the paths of the files; ``path`` is without the suffix."""
    style.refuse_foreign(style.files_of(path, kinds))
    columns = 2 if len(names) < 5 else 3
    figure, axes = style.panels(len(names), columns, (6, 5.5 if len(names) <= columns else 4.2))
    ends: dict[str, list[float]] = {}
    for axis, curve in zip(axes, (CURVES[name] for name in names), strict=True):
        seen: list[tuple[float, float]] = []
        for place, (system, paths) in enumerate(logs.items()):
            for number, log in enumerate(paths):
                updates, values = points(log, curve)
                if curve.noisy:
                    values = smooth(values, max(1, len(values) // 20))
                label = system if number == 0 else None
                axis.plot(updates, values, **style.line_style(place), linewidth=1.4, alpha=0.9, label=label)
                seen += zip(updates, values, strict=True)
                if curve.kind == "valid" and values:
                    ends.setdefault(system, []).append(values[-1])
        _frame(axis, curve, seen)
    style.legend(figure, sorted(logs, key=lambda system: -max(ends.get(system, [math.inf]))))  # as curves end
    return style.save(figure, path, kinds)


def _frame(axis: Axes, curve: Curve, seen: Sequence[tuple[float, float]]) -> None:
    """Set title, labels and limits of a panel; `seen` are the updates and values of all its lines."""
    axis.set(title=curve.title, xlabel="updates", ylabel=curve.axis)
    if curve.logarithmic:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(LogFormatter())  # 4, not 4 × 10⁰
        axis.yaxis.set_minor_formatter(LogFormatter())
    whole_numbers = AutoLocator()
    whole_numbers.set_params(integer=True)
    axis.xaxis.set_major_locator(whole_numbers)
    style.plain(axis)
    if not seen:
        return
    last = max(updates for updates, _ in seen)
    axis.set_xlim(0, last * 1.01)
    late = [value for updates, value in seen if updates >= WARM * last and math.isfinite(value)]
    if curve.from_start or not late:
        return
    if curve.logarithmic:
        axis.set_ylim(min(late) / 1.1, max(late) * 1.1)
        return
    margin = 0.05 * (max(late) - min(late)) or 0.1
    axis.set_ylim(min(late) - margin, max(late) + margin)
