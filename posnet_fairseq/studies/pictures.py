"""Everything that is made of the results of a study: tables, and pictures of courses, costs and lengths."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from posnet_fairseq.plots import style
from posnet_fairseq.shared.files import check_folder, replacing
from posnet_fairseq.studies import results, tables
from posnet_fairseq.studies.analysis import Analysis, front
from posnet_fairseq.studies.protocol import read_study

LATE = 0.25  # the axis is scaled for the part of the trainings from here on
FEWEST = 20  # sentences in a group whose score is drawn
TICKS = (*range(2, 10), *range(10, 30, 2), *range(30, 100, 10), *range(100, 1000, 100))  # of perplexities


def publish(name: str, folder: Path, out: Path) -> list[Path]:
    """Write the tables of a study, draw it, and return the paths of what was made."""
    study = read_study(name)
    check_folder(out)
    analysis = Analysis(study, results.read_all(folder, study))
    made = {"courses": _courses, "costs": _costs, "lengths": _lengths}
    if analysis.joined:
        made["joined"] = _joined
    path, places = out / f"{name}.md", {what: out / f"{name}.{what}" for what in made}
    out.mkdir(parents=True, exist_ok=True)
    style.refuse_foreign([path, *(file for place in places.values() for file in style.files_of(place))])
    with replacing(path) as temporary:
        text = f"<!-- {style.MAKER} -->\n\n# Tables of the study {name}\n\n{tables.markdown(analysis)}"
        temporary.write_text(text, encoding="utf-8")
    return [path, *(file for what, draw in made.items() for file in style.save(draw(analysis), places[what]))]


def _courses(analysis: Analysis) -> Figure:
    """Draw the perplexity of the validation set by updates, and by CPU time."""
    figure, axes = style.panels(2, 2, (6.5, 5.5))
    late: list[float] = []
    for place, system in enumerate(analysis.systems):
        updates, values = analysis.course(system)
        per_update = analysis.seconds_per_update(system)
        for axis, unit in zip(axes, (1, per_update and per_update / 3600), strict=True):
            if unit:
                axis.plot(updates * unit, values, **style.line_style(place), linewidth=1.4, label=system)
        late += values[updates >= LATE * updates[-1]].tolist()
    low, high = min(late) / 1.05, max(late) * 1.05
    for axis, label in zip(axes, ("updates", "hours of a core"), strict=True):
        axis.set(xlabel=label, ylabel="perplexity of the validation set", yscale="log", ylim=(low, high))
        axis.set_xlim(left=0)
        ticks = [tick for tick in TICKS if low <= tick <= high]
        axis.set_yticks(ticks, map(str, ticks))
        axis.set_yticks([], minor=True)
        style.plain(axis)
    style.legend(figure, sorted(analysis.systems, key=lambda system: -analysis.course(system)[1][-1]))
    return figure


def _costs(analysis: Analysis) -> Figure:
    """Draw BLEU on each test set against CPU time of the training and of the translation, with the Pareto fronts."""
    seconds = {system: analysis.cpu_seconds(system) for system in analysis.systems}
    hours = {system: known / 3600 for system, known in seconds.items() if known}
    figure, axes = style.panels(2 * len(analysis.test_sets), 2, (6.5, 5))
    for *row, test_set in zip(axes[::2], axes[1::2], analysis.test_sets, strict=True):
        times = {system: analysis.translation_seconds(system, test_set, "float32") for system in analysis.systems}
        means = {system: fmean(filter(None, runs)) for system, runs in times.items() if any(runs)}
        sentence = {system: 1000 * mean / analysis.size(test_set) for system, mean in means.items()}
        labels = ("hours of a core for the updates", "ms of a core to translate a sentence (float32)")
        for axis, label, cost in zip(row, labels, (hours, sentence), strict=True):
            _against(axis, analysis, test_set, cost)
            axis.set(title=analysis.title(test_set), xlabel=label, ylabel="BLEU, 95% interval")
            style.plain(axis)
    style.legend(figure, analysis.systems)
    return figure


def _against(axis: Axes, analysis: Analysis, test_set: str, cost: Mapping[str, float]) -> None:
    """Draw scores against costs, with their Pareto front and its names."""
    scores = {system: analysis.score(system, test_set, "bleu") for system in cost}
    best = front({system: (cost[system], scores[system].value) for system in cost})
    axis.plot(
        [cost[system] for system in best], [scores[system].value for system in best],
        color="#888888", linewidth=1, linestyle="--", drawstyle="steps-post", zorder=0,
    )  # fmt: skip
    places = {system: place for place, system in enumerate(analysis.systems)}
    for system, score in scores.items():
        style.draw_score(axis, places[system], cost[system], score, system)
    height, top = axis.get_ylim()
    step = 0.03 * (top - height)
    for system in best:  # names to the left and above, where a front has no points; higher than the one before
        height = max(scores[system].value, height + step)
        axis.annotate(
            system, (cost[system], height), xytext=(-6, 4), ha="right",
            textcoords="offset points", fontsize=8, color=style.line_style(places[system])["color"],
            path_effects=[withStroke(linewidth=3, foreground="white")],  # bars of others pass behind
        )  # fmt: skip
    for system in (each for each in scores if each not in best):  # smaller, to the right, behind all points
        axis.annotate(
            system, (cost[system], scores[system].value), xytext=(5, -3), textcoords="offset points", fontsize=7,
            color=style.line_style(places[system])["color"], zorder=1,
        )  # fmt: skip
    left, right = axis.get_xlim()
    axis.set_xlim(left - 0.3 * (right - left), right + 0.25 * (right - left))  # room for names


def _lengths(analysis: Analysis) -> Figure:
    """Draw BLEU by words of the reference, relative to the first baseline."""
    columns = len(analysis.test_sets)
    figure, axes = style.panels(columns, columns, (6.5, 5.5), (1, 0))
    first = [*analysis.baselines, *analysis.systems][0]
    for axis, test_set in zip(axes, analysis.test_sets, strict=True):
        groups = [group for group in analysis.by_length(test_set) if group.size >= FEWEST]
        for place, system in enumerate(analysis.systems):
            values = [group.scores[system]["bleu"] - group.scores[first]["bleu"] for group in groups]
            axis.plot(range(len(groups)), values, **style.line_style(place), marker="o", markersize=4, label=system)
        axis.set_xticks(range(len(groups)), [f"{group.label}\n({group.size:,})" for group in groups])
        title, label = analysis.title(test_set), "words of the reference (sentences)"
        axis.set(title=title, xlabel=label, ylabel=f"BLEU − that of {first}")
        style.plain(axis)
    style.legend(figure)
    return figure


def _joined(analysis: Analysis) -> Figure:
    """Draw BLEU, and the length of translations, by the number of sentences that are joined to a line."""
    figure, axes = style.panels(2, 2, (6.5, 5.5), (1, 0))
    counts = [1, *analysis.study.joined]
    figures = ("BLEU", lambda score: score.bleu.value), ("length / that of the references", lambda score: score.length)
    for axis, (label, figure_of) in zip(axes, figures, strict=True):
        for place, system in enumerate(analysis.systems):
            if scores := analysis.joined.get(system):
                values = [*map(figure_of, scores.values())]
                axis.plot([*scores], values, **style.line_style(place), marker="o", markersize=4, label=system)
        axis.set(title=analysis.title(analysis.test_sets[0]), xlabel="sentences joined to a line", ylabel=label)
        axis.set_xscale("log")
        axis.set_xticks(counts, map(str, counts))
        axis.set_xticks([], minor=True)
        style.plain(axis)
    style.legend(figure)
    return figure
