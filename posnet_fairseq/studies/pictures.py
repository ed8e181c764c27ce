"""Pictures of a study: courses of trainings, scores against costs, and scores by length."""

from collections.abc import Callable, Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posnet_fairseq.plots import style
from posnet_fairseq.studies.analysis import Analysis, front

LATE = 0.25  # the axis is scaled for the part of the trainings from here on
FEWEST = 20  # sentences in a group whose score is drawn
TICKS = (*range(2, 10), *range(10, 30, 2), *range(30, 100, 10), *range(100, 1000, 100))  # of perplexities


def draw(analysis: Analysis, folder: Path) -> list[Path]:
    """Draw a study.

    Args:
        analysis: of its results.
        folder: of the pictures, which is there.

    Returns:
        The paths of the pictures.
    """
    return [path for what, made in _MADE.items() for path in style.save(made(analysis), _place(analysis, folder, what))]


def files(analysis: Analysis, folder: Path) -> list[Path]:
    """The paths of what :func:`draw` makes."""
    return [path for what in _MADE for path in style.files_of(_place(analysis, folder, what))]


def _place(analysis: Analysis, folder: Path, what: str) -> Path:
    return folder / f"{analysis.study.name}.{what}"


def _style(analysis: Analysis, system: str) -> dict[str, str]:
    return style.line_style(analysis.systems.index(system))


def _legend(figure: Figure, axis: Axes, order: list[str]) -> None:
    """A legend beside the panels, in an order of systems."""
    handles = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    there = [name for name in order if name in handles]
    figure.legend([handles[name] for name in there], there, loc="outside right upper", frameon=False, fontsize=9)


def _courses(analysis: Analysis) -> Figure:
    """Perplexity of the validation set by updates, and by CPU time."""
    figure, axes = style.figure(13, 5.5, 1, 2)
    late: list[float] = []
    for system in analysis.systems:
        updates, values = analysis.course(system)
        of_update = analysis.seconds_per_update(system)
        axes[0, 0].plot(updates, values, **_style(analysis, system), linewidth=1.4, label=system)
        if of_update:
            axes[0, 1].plot(updates * of_update / 3600, values, **_style(analysis, system), linewidth=1.4, label=system)
        late += [value for update, value in zip(updates, values, strict=True) if update >= LATE * updates[-1]]
    for axis, label in zip(axes.flat, ("updates", "hours of a core"), strict=True):
        axis.set_yscale("log")
        axis.set_xlim(left=0)
        axis.set_ylim(min(late) / 1.05, max(late) * 1.05)
        ticks = [tick for tick in TICKS if min(late) / 1.05 <= tick <= max(late) * 1.05]
        axis.set_yticks(ticks, map(str, ticks))
        axis.set_yticks([], minor=True)
        axis.set(xlabel=label, ylabel="perplexity of the validation set")
        style.plain(axis)
    _legend(figure, axes[0, 0], sorted(analysis.systems, key=lambda system: -analysis.course(system)[1][-1]))
    return figure


def _costs(analysis: Analysis) -> Figure:
    """BLEU on each test set against CPU time of the training and against parameters, with the Pareto fronts."""
    costs: dict[str, dict[str, float | None]] = {
        "hours of a core for the updates": {
            system: seconds and seconds / 3600
            for system in analysis.systems
            for seconds in [analysis.cpu_seconds(system)]
        },
        "millions of parameters": {
            system: number and number / 1e6
            for system in analysis.systems
            for number in [analysis.mean(system, "model", "parameters")]
        },
    }
    rows = len(analysis.test_sets)
    figure, axes = style.figure(13, 5 * rows, rows, 2)
    for row, test_set in zip(axes, analysis.test_sets, strict=True):
        for axis, (label, cost) in zip(row, costs.items(), strict=True):
            _against(axis, analysis, test_set, {name: value for name, value in cost.items() if value is not None})
            axis.set(title=analysis.title(test_set), xlabel=label, ylabel="BLEU, 95% interval")
            style.plain(axis)
    _legend(figure, axes[0, 1], analysis.systems)
    return figure


def _against(axis: Axes, analysis: Analysis, test_set: str, cost: Mapping[str, float]) -> None:
    scores = {system: analysis.score(system, test_set, "bleu") for system in cost}
    best = front({system: (cost[system], scores[system].value) for system in cost})
    axis.plot(
        [cost[system] for system in best],
        [scores[system].value for system in best],
        color="#888888", linewidth=1, linestyle="--", drawstyle="steps-post", zorder=0, label="Pareto front",
    )  # fmt: skip
    for place, system in enumerate(analysis.systems):
        if system in cost:
            score = scores[system]
            below, above = max(0.0, score.value - score.low), max(0.0, score.high - score.value)
            axis.errorbar(
                cost[system], score.value, yerr=[[below], [above]],
                color=_style(analysis, system)["color"],
                marker=style.MARKERS[place // len(style.COLOURS) % len(style.MARKERS)],
                markersize=8 if system in best else 6, capsize=2, elinewidth=0.8, linestyle="", label=system,
            )  # fmt: skip
    bottom, top = axis.get_ylim()
    height = bottom
    for system in best:  # names to the left and above, where a front has no points; higher than the one before
        height = max(scores[system].value, height + 0.03 * (top - bottom))
        axis.annotate(
            system, (cost[system], height), xytext=(-6, 4), ha="right",
            textcoords="offset points", fontsize=8, color=_style(analysis, system)["color"],
        )  # fmt: skip
    left, right = axis.get_xlim()
    axis.set_xlim(left - 0.2 * (right - left), right)  # room for the first name


def _lengths(analysis: Analysis) -> Figure:
    """BLEU by words of the reference, relative to the first baseline."""
    columns = len(analysis.test_sets)
    figure, axes = style.figure(1 + 6.5 * columns, 5.5, 1, columns)
    first = analysis.baselines[0] if analysis.baselines else analysis.systems[0]
    for axis, test_set in zip(axes.flat, analysis.test_sets, strict=True):
        groups = [group for group in analysis.by_length(test_set, "bleu") if group[1] >= FEWEST]
        for system in analysis.systems:
            values = [scores[system] - scores[first] for _, _, scores in groups]
            axis.plot(range(len(groups)), values, **_style(analysis, system), marker="o", markersize=4, label=system)
        axis.set_xticks(range(len(groups)), [f"{words}\n({size:,})" for words, size, _ in groups])
        axis.set(
            title=analysis.title(test_set),
            xlabel="words of the reference (sentences)",
            ylabel=f"BLEU − that of {first}",
        )
        style.plain(axis)
    _legend(figure, axes[0, 0], analysis.systems)
    return figure


_MADE: dict[str, Callable[[Analysis], Figure]] = {"courses": _courses, "costs": _costs, "lengths": _lengths}
