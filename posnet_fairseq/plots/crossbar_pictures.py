"""Pictures of posnet-analog: scores against the time since programming and against bits of converters."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import Struct

from posnet_fairseq.plots import style
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import shown
from posnet_fairseq.shared.schema import read_json

METRIC = "BLEU"
TIMES = {1: "1 s", 25: "25 s", 3600: "1 h", 86400: "1 d", 30 * 86400: "1 month", 365 * 86400: "1 y"}


class _Row(Struct):
    system: str
    metric: str
    score: float | None = None
    deviation: float | None = None
    seconds: int | None = None
    adc_bits: int | None = None


class _Report(Struct):
    scores: list[_Row]


@dataclass(frozen=True)
class _Experiment:
    """The scores of one model: of the digital one, and (seconds, bits, score, deviation) of the others."""

    name: str
    digital: float
    points: Sequence[tuple[Any, ...]]

    def course(self, along: int) -> list[tuple[Any, ...]]:
        """Return (seconds or bits, score, deviation) for the most bits, or the latest time."""
        largest = max(point[1 - along] for point in self.points)
        return sorted((point[along], *point[2:]) for point in self.points if point[1 - along] == largest)


def draw(folders: Sequence[str], place: Path) -> list[Path]:
    """Draw folders of posnet-analog, and return the paths; the place of the picture is without the suffix."""
    experiments = [_read(Path(folder)) for folder in folders]
    taken = Counter(one.name for one in experiments)
    experiments = [
        replace(one, name=shown(folder)) if taken[one.name] > 1 else one
        for one, folder in zip(experiments, folders, strict=True)
    ]
    labels = ("time since programming", "bits of the converters of outputs")
    panels = [along for along in range(len(labels)) if any(len(one.course(along)) > 1 for one in experiments)]
    if not panels:
        raise UsageError(
            f"{folders[0]}: one time and one number of bits make no line. Give posnet-analog several, as "
            "--time 25s 1d 1y."
        )
    style.refuse_foreign(style.files_of(place))
    figure, axes = style.panels(len(panels), len(panels), (5.5, 4.2), (1.5, 0))
    for axis, along in zip(axes, panels, strict=True):
        for number, one in enumerate(experiments):
            values, scores, deviations = zip(*one.course(along), strict=True)
            line = style.line_style(number)
            axis.errorbar(
                values, scores, deviations, **line, marker=style.MARKERS[number % len(style.MARKERS)], markersize=4,
                capsize=3, linewidth=1.3, label=one.name,
            )  # fmt: skip
            axis.axhline(one.digital, color=line["color"], linewidth=0.8, linestyle=":")
        axis.set(xlabel=labels[along] + _other(experiments, along), ylabel=f"{METRIC} (dotted: digital)")
        there = sorted({point[along] for one in experiments for point in one.points})
        if along == 0:
            axis.set_xscale("log")
            axis.set_xticks([], minor=True)
        axis.set_xticks(there, [str(value) if along else _time(value) for value in there])
        style.plain(axis)
    style.legend(figure)
    return style.save(figure, place)


def _other(experiments: Sequence[_Experiment], along: int) -> str:
    """Return what the label of a course says of the bits or the time that it is of, "" if there is one of them only."""
    given = [{point[1 - along] for point in one.points} for one in experiments]
    if all(len(values) == 1 for values in given):
        return ""
    largest = {max(values) for values in given}
    if len(largest) > 1:
        return ", after the longest" if along else ", with the most bits"
    (value,) = largest
    return f", after {_time(value)}" if along else f", with {value} bits"


def _time(seconds: int) -> str:
    return TIMES.get(seconds, f"{seconds:,} s")


def _read(folder: Path) -> _Experiment:
    report = read_json(folder / "report.json", _Report, "report of posnet-analog", "Give a folder that it wrote.")
    digital, points = [], []
    for row in report.scores:
        if row.metric == METRIC and row.score is not None:
            if row.system == "digital":
                digital.append(row.score)
            elif row.seconds is not None and row.adc_bits is not None:
                points.append((row.seconds, row.adc_bits, row.score, row.deviation or 0.0))
    if len(digital) != 1 or not points:
        raise UsageError(f"{folder} has no scores by time and bits. Give a folder that posnet-analog wrote.")
    return _Experiment(folder.resolve().name, digital[0], points)
