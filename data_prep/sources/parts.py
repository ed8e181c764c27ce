"""Parts of a set of sentence pairs, and the files of the set that they become."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from posnet_data_prep.sources.oddities import Oddities, TableForm
from posnet_data_prep.sources.shifts import Shift, ShiftDetector
from posnet_fairseq.shared.errors import UsageError, counted
from posnet_fairseq.shared.files import distinct_names
from posnet_fairseq.shared.progress import ProgressReporter, shown
from posnet_fairseq.text.plain import PlainText, is_markup

MARKS = ("tags", "weights")  # endings of files beside those of a set, see :func:`write_set`


@dataclass(frozen=True)
class Part:
    """Files that hold a part of a set: of source and target, or one table of both."""

    read: Callable[[Path], Iterator[Any]]  # returns the lines of a file, or the pairs of a table
    paths: Sequence[Path]
    title: str = ""  # in reports and records; empty: the name of the first file
    weight: int = 1  # how often each of its pairs is in the training set
    tag: str = ""  # goes in front of the tokens of its sources

    @property
    def is_marked(self) -> bool:
        """Whether it has a weight or a tag."""
        return self.weight > 1 or self.tag != ""

    def pairs(self) -> Iterator[tuple[str, ...]]:
        """Yield the sentence pairs of the files."""
        columns = list(map(self.read, self.paths))
        if len(columns) == 1:
            yield from columns[0]
            return
        for number, row in enumerate(zip_longest(*columns), start=1):
            if None in row:
                shorter, longer = self.paths if row[0] is None else reversed(self.paths)
                raise UsageError(
                    f"{shorter} has {counted(number - 1, 'line')}, {longer} has more, but they belong together line by "
                    "line. Fix the files first."
                )
            yield row


def write_set(
    folder: Path,
    name: str,
    languages: Sequence[str],
    parts: Sequence[Part],
    names: Mapping[Path, str],
    report: ProgressReporter,
) -> dict[str, Any]:
    """Write all parts of a set, one after the other, to the files NAME.LANGUAGE of a folder.

    In reports, files have the ``names`` of :func:`file_names`. The counts are ``lines``, ``corpora`` (of each part by
    its title), ``tokenized``, the lines of each file that seems to be tokenized already, ``odd``, see
    :func:`add_oddities`, and ``remarks``, sentences without periods. If a part has a weight or a tag, NAME.tags and
    NAME.weights have those of each line.
    """
    counts: dict[str, int] = {}
    tokenized = Counter[str]()
    odd: dict[str, dict[str, Any]] = {}
    remarks: list[str] = []
    with ExitStack() as stack:
        files = [
            stack.enter_context(open(folder / f"{name}.{language}", "w", encoding="utf-8", newline="\n"))
            for language in languages
        ]
        marked = any(part.is_marked for part in parts)
        marks = [stack.enter_context(open(folder / f"{name}.{kind}", "w")) for kind in MARKS if marked]
        for part in parts:
            sides = [(file, PlainText(), Oddities()) for file in files]
            shifts, table = ShiftDetector(), TableForm() if len(part.paths) == 1 else None
            title = part.title or names[part.paths[0]]
            with report.stage(f"read {title}") as bar:
                for pair in bar.over(part.pairs()):
                    for (file, text, oddities), line in zip(sides, pair, strict=True):
                        text.add(line)
                        oddities.add(line)
                        file.write(f"{line}\n")
                    shifts.add(*pair)
                    if table:
                        table.add(pair)
            for file, mark in zip(marks, (part.tag, part.weight), strict=False):
                file.writelines(itertools.repeat(f"{mark}\n", sides[0][1].lines))
            counts[title] = counts.get(title, 0) + sides[0][1].lines
            found: dict[str, int] = {}  # of a table, whose columns have one name, one of them
            for number, (_, text, oddities) in enumerate(sides):
                path = part.paths[min(number, len(part.paths) - 1)]
                found |= tokenized_lines(text, path, names)
                add_oddities(odd, oddities, path, names)
            tokenized.update(found)
            if table:
                remarks += [f"{shown(title)} {remark}" for remark in table.remarks()]
            if shift := shifts.shift():
                remarks.append(_told(shift, part.paths, names))
    return {
        "lines": sum(counts.values()),
        "corpora": counts,
        "tokenized": tokenized,
        "odd": odd,
        "remarks": list(dict.fromkeys(remarks)),
    }


def file_names(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the name of each file in reports: that of the file, after as many parent folders as make names unique."""
    different = list(dict.fromkeys(paths))
    return dict(zip(different, map(shown, distinct_names(different)), strict=True))


def _told(shift: Shift, paths: Sequence[Path], names: Mapping[Path, str]) -> str:
    """Return a sentence, without period, about lines of two files, or of one table, that look shifted."""
    sides = [names[path] for path in paths]
    if len(sides) == 1:
        sides = [f"the {column} column of {sides[0]}" for column in ("first", "second")]
    unit, other = _unit(paths[0]), _unit(paths[-1])
    return (
        f"{unit} {shift.first:,} of {sides[0]} looks shifted: it seems to belong to {other} "
        f"{shift.first + shift.offset:,} of {sides[1]}, and so on to about {unit} {shift.last:,}. Near the first of "
        f"them one of the two lacks a {unit} or has one too many"
    )


def _unit(path: Path) -> str:
    """Return what the numbers of a file's sentences count."""
    with contextlib.suppress(UsageError):  # of a first line that is no text, and was repaired
        return "segment" if is_markup(path) else "line"
    return "line"


def add_oddities(odd: dict[str, dict[str, Any]], oddities: Oddities, path: Path, names: Mapping[Path, str]) -> None:
    """Add what was found in a file to counts by kind: ``lines``, and ``first``, the first one with its number."""
    for kind, found in oddities.found.items():
        first = f"{_unit(path)} {found['number']:,} of {names[path]}: {found['text']}"
        odd.setdefault(kind, {"lines": 0, "first": first})["lines"] += found["lines"]


def tokenized_lines(text: PlainText, path: Path, names: Mapping[Path, str]) -> dict[str, int]:
    """Return {name: lines} of a file that seems to be tokenized already, else {}; refuse one split into subwords."""
    if text.is_segmented:
        raise UsageError(
            f"{path} is split into subwords ({text.segmented:,} of {text.lines:,} lines have @@ or ▁), and would be "
            "split again. Give the plain text that it was made of."
        )
    return {names[path]: text.tokenized} if text.is_tokenized else {}
