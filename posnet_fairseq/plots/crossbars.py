"""Pictures of posnet-analog: scores against the time since programming and against bits of converters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from posnet_fairseq.plots import style
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.records import read_json

METRIC = "BLEU"
TIMES = {1: "1 s", 25: "25 s", 3600: "1 h", 86400: "1 d", 30 * 86400: "1 month", 365 * 86400: "1 y"}


@dataclass(frozen=True)
class _Experiment:
    """What was measured of one model.

    Attributes:
        name: of the folder.
        digital: score of the digital model.
        rows: scores of the others.
    """

    name: str
    digital: float
    rows: Sequence[Mapping[str, Any]]

    def course(self, along: str, fixed: str) -> list[tuple[float, float, float]]:
        """(value, score, deviation) by the value of `along`, for the largest value of `fixed`."""
        largest = max(row[fixed] for row in self.rows)
        return sorted((row[along], row["score"], row["deviation"] or 0.0) for row in self.rows if row[fixed] == largest)


def draw(folders: Sequence[str], place: Path) -> list[Path]:
    """Draw experiments.

    Args:
        folders: that posnet-analog wrote.
        place: of the picture, without the suffix.

    Returns:
        the paths of the pictures.

    Raises:
        UsageError: a folder has no report, or all have one time and one number of bits.
    """
    experiments = [_read(Path(folder)) for folder in folders]
    panels = {
        along: (fixed, label)
        for along, fixed, label in (
            ("seconds", "adc_bits", "time since programming"),
            ("adc_bits", "seconds", "bits of the converters of outputs"),
        )
        if any(len(one.course(along, fixed)) > 1 for one in experiments)
    }
    if not panels:
        raise UsageError(
            f"{folders[0]}: one time and one number of bits make no line. Give posnet-analog several, as "
            "--time 25s 1d 1y."
        )
    style.refuse_foreign(style.files_of(place))
    figure, axes = style.figure(5.5 * len(panels) + 1.5, 4.2, 1, len(panels))
    for axis, (along, (fixed, label)) in zip(axes.flat, panels.items(), strict=True):
        for number, one in enumerate(experiments):
            values, scores, deviations = zip(*one.course(along, fixed), strict=True)
            line = style.line_style(number)
            axis.errorbar(
                values, scores, deviations, **line, marker=style.MARKERS[number % len(style.MARKERS)], markersize=4,
                capsize=3, linewidth=1.3, label=one.name,
            )  # fmt: skip
            axis.axhline(one.digital, color=line["color"], linewidth=0.8, linestyle=":")
        axis.set(xlabel=label, ylabel=f"{METRIC} (dotted: digital)")
        _ticks(axis, along, [row[along] for one in experiments for row in one.rows])
        style.plain(axis)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=9)
    return style.save(figure, place)


def _ticks(axis: Axes, along: str, values: Sequence[int]) -> None:
    if along == "seconds":
        axis.set_xscale("log")
        axis.set_xticks([], minor=True)
    there = sorted(set(values))
    axis.set_xticks(there, [TIMES.get(value, f"{value:,} s") if along == "seconds" else str(value) for value in there])


def _read(folder: Path) -> _Experiment:
    report = read_json(folder / "report.json")
    try:
        rows = [row for row in report["scores"] if row["metric"] == METRIC]  # type: ignore[index]
        (digital,) = (float(row["score"]) for row in rows if row["system"] == "digital")
        found = [row for row in rows if row["system"] != "digital"]
        for row in found:
            float(row["seconds"]), float(row["adc_bits"]), float(row["score"]), float(row["deviation"] or 0)
        if not found:
            raise ValueError
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise UsageError(f"{folder} has no report.json of posnet-analog. Give a folder that it wrote.") from error
    return _Experiment(folder.resolve().name, digital, found)
