"""Readers of the formats that corpora come in, sets of sentence pairs, and the stages that read the user's files."""

import contextlib
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from posnet_data_prep.dataset import SETS
from posnet_data_prep.sources.oddities import CSV_COMMAND, Oddities, TableForm
from posnet_data_prep.sources.shifts import Shift, ShiftDetector
from posnet_fairseq.shared.compressed import damage_refused, has_compressed_name, open_binary, plain_suffix
from posnet_fairseq.shared.errors import UsageError, counted
from posnet_fairseq.shared.files import check_file, is_blank, iterate_lines, write_lines
from posnet_fairseq.shared.progress import ProgressReporter, shown
from posnet_fairseq.shared.records import digest
from posnet_fairseq.shared.stages import FolderStage
from posnet_fairseq.text.plain import PlainText, columns_of_text, is_markup, iterate_text, segments

COMPRESSION = 3.5  # bytes of text for each byte of a compressed file, about
PARTS = 20  # of a text without validation and test set, each becomes one part

MARKS = ("tags", "weights")  # endings of files beside those of a set, see :func:`write_set`

_DROPPED = re.compile(r"<url>|<talkid>|<keywords>")
_KEPT_TAGS = re.compile(r"</?(?:title|description)>")


class Reader:
    """Reads lines of published text, one method for each format. Lines that are not UTF-8 are repaired."""

    def __init__(self) -> None:
        self.repaired = 0  # lines in which invalid bytes became U+FFFD

    def plain(self, path: Path) -> Iterator[str]:
        """Yield the lines of a text file, compressed or not, without line ends and byte order mark."""
        with damage_refused(path), open_binary(path) as file:
            for number, line in enumerate(file, start=1):
                encoding = "utf-8-sig" if number == 1 else "utf-8"
                try:
                    text = line.decode(encoding)
                except UnicodeDecodeError:
                    self.repaired += 1
                    text = line.decode(encoding, errors="replace")
                yield text.removesuffix("\n").removesuffix("\r")

    def tagged(self, path: Path) -> Iterator[str]:
        """Yield the sentences, titles and descriptions of IWSLT's training text, without addresses and keywords."""
        return (_KEPT_TAGS.sub("", line) for line in self.plain(path) if not _DROPPED.search(line))

    def segments(self, path: Path) -> Iterator[str]:
        """Yield the segments of IWSLT's xml and WMT's sgm, which is no XML; entities stay, as sacreBLEU leaves them."""
        return segments(self.plain(path), path)

    def talk_segments(self, path: Path) -> Iterator[str]:
        """Yield IWSLT's test text: segments with ’ replaced by ', as the original script does on both sides."""
        return (line.replace("’", "'") for line in self.segments(path))


def read_table(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the pairs of a file with two columns that a tab separates."""
    for number, line in enumerate(iterate_lines(path), start=1):
        columns = tuple(column.removesuffix("\r") for column in line.split("\t"))
        if len(columns) != 2:
            raise UsageError(
                f"{path}: line {number} has {len(columns)} {'column' if len(columns) == 1 else 'columns'} with tabs "
                f"between, two are expected: the sentence and its translation. {_how_to_mend(columns)}."
            )
        yield columns


def _how_to_mend(columns: Sequence[str]) -> str:
    """Return what to do about a row of a table that has not two columns."""
    if any(column.startswith('"') and column.count('"') % 2 for column in columns):
        inside = "a tab" if len(columns) > 2 else "the end of a line"
        return f"It looks written as CSV, with {inside} between quotation marks: write it without them ({CSV_COMMAND})"
    if len(columns) > 2:
        text = columns_of_text(columns)
        keep = ",".join(map(str, text)) if len(text) == 2 else "1,2"
        others = "" if len(text) == 2 else ", if they are the first two"
        return f"Cut the others off, for instance with cut -f{keep}{others}"
    return "Put a tab between them" if columns[0].strip() else "Remove the empty line"


@dataclass(frozen=True)
class Part:
    """Files that hold a part of a set: of source and target, or one table of both."""

    title: str  # in reports and records
    read: Callable[[Path], Iterator[Any]]  # returns the lines of a file, or the pairs of a table
    paths: Sequence[Path]
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
    folder: Path, name: str, languages: Sequence[str], parts: Sequence[Part], report: ProgressReporter
) -> dict[str, Any]:
    """Write all parts of a set, one after the other, to the files NAME.LANGUAGE of a folder.

    The counts are ``lines``, ``corpora`` (of each part by its title), ``tokenized``, the lines of each file that seems
    to be tokenized already, ``odd``, see :func:`add_oddities`, and ``remarks``, sentences without periods. If a part
    has a weight or a tag, NAME.tags and NAME.weights have those of each line.
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
            with report.stage(f"read {part.title}") as bar:
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
            counts[part.title] = counts.get(part.title, 0) + sides[0][1].lines
            found: dict[str, int] = {}  # of a table, whose columns have one name, one of them
            for number, (_, text, oddities) in enumerate(sides):
                path = part.paths[min(number, len(part.paths) - 1)]
                found |= tokenized_lines(text, path)
                add_oddities(odd, oddities, path)
            tokenized.update(found)
            if table:
                remarks += [f"{shown(part.title)} {remark}" for remark in table.remarks()]
            if shift := shifts.shift():
                remarks.append(_told(shift, part.paths))
    return {
        "lines": sum(counts.values()),
        "corpora": counts,
        "tokenized": tokenized,
        "odd": odd,
        "remarks": list(dict.fromkeys(remarks)),
    }


def _told(shift: Shift, paths: Sequence[Path]) -> str:
    """Return a sentence, without period, about lines of two files, or of one table, that look shifted."""
    names = [shown(path.name) for path in paths]
    if len(names) == 1:
        names = [f"the {column} column of {names[0]}" for column in ("first", "second")]
    unit, other = _unit(paths[0]), _unit(paths[-1])
    return (
        f"{unit} {shift.first:,} of {names[0]} looks shifted: it seems to belong to {other} "
        f"{shift.first + shift.offset:,} of {names[1]}, and so on to about {unit} {shift.last:,}. Near the first of "
        f"them one of the two lacks a {unit} or has one too many"
    )


def _unit(path: Path) -> str:
    """Return what the numbers of a file's sentences count."""
    with contextlib.suppress(UsageError):  # of a first line that is no text, and was repaired
        return "segment" if is_markup(path) else "line"
    return "line"


def add_oddities(odd: dict[str, dict[str, Any]], oddities: Oddities, path: Path) -> None:
    """Add what was found in a file to counts by kind: ``lines``, and ``first``, the first one with its number."""
    for kind, found in oddities.found.items():
        first = f"{_unit(path)} {found['number']:,} of {shown(path.name)}: {found['text']}"
        odd.setdefault(kind, {"lines": 0, "first": first})["lines"] += found["lines"]


def tokenized_lines(text: PlainText, path: Path) -> dict[str, int]:
    """Return {name: lines} of a file that seems to be tokenized already, else {}; refuse one split into subwords."""
    if text.is_segmented:
        raise UsageError(
            f"{path} is split into subwords ({text.segmented:,} of {text.lines:,} lines have @@ or ▁), and would be "
            "split again. Give the plain text that it was made of."
        )
    return {shown(path.name): text.tokenized} if text.is_tokenized else {}


def is_table(path: Path) -> bool:
    """Return whether the name of a file, compressed or not, says that it has two columns."""
    return plain_suffix(path) == ".tsv"


def own_part(paths: Sequence[Path], weight: int) -> Part:
    """Return the user's own files of source and target, or one table."""
    return Part(shown(paths[0].name), read_table if is_table(paths[0]) else iterate_text, paths, weight)


def own_pairs(stages: Path, sets: Mapping[str, Sequence[Part]], languages: Sequence[str]) -> tuple[FolderStage, float]:
    """Return the stage that reads sentence pairs, the parts of each set, and by what weights multiply its size."""

    def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
        return {name: write_set(folder, name, languages, parts, report) for name, parts in sets.items()}

    paths = {name: [path for part in parts for path in part.paths] for name, parts in sets.items()}
    sizes = [(_plain_size(part.paths), part.weight) for parts in sets.values() for part in parts]
    size = sum(plain for plain, _ in sizes)
    growth = sum(plain * weight for plain, weight in sizes) / max(1, size)
    settings: dict[str, Any] = {name: [[is_table(path), digest(path)] for path in of] for name, of in paths.items()}
    marks = {name: [[part.tag, part.weight] for part in parts] for name, parts in sets.items()}
    if any(part.is_marked for parts in sets.values() for part in parts):  # others need not be made again
        settings["marks"] = marks
    return FolderStage(stages / "read", read, {**settings, "languages": list(languages)}, size=size), growth


def own_text(stages: Path, files: Sequence[Path], ending: str, seed: int | None) -> FolderStage:
    """Return the stage that reads text of one language, a sentence or paragraph a line, without blank lines.

    Of one text, the last two twentieths become validation and test set. With a seed, lines are put in random order.
    """
    if len(files) == 2:
        raise UsageError("--valid and --test belong together. Give both, or none to take them off the end of --train.")

    def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
        texts, odd = [], list[dict[str, dict[str, Any]]]()
        for path in files:
            oddities, lines = Oddities(), []
            for line in iterate_text(path):
                oddities.add(line)
                if not is_blank(line):
                    lines.append(line)
            texts.append(lines)
            odd.append({})
            add_oddities(odd[-1], oddities, path)
        if len(texts) == 1:
            lines, part = texts[0], len(texts[0]) // PARTS or 1
            texts = [lines[: -2 * part], lines[-2 * part : -part], lines[-part:]]
        odd += [{}] * (len(SETS) - len(odd))  # of one text, all are said of the training set
        found = {}
        for name, lines, path, of_file in zip(SETS, texts, itertools.cycle(files), odd, strict=False):
            found[name] = {"lines": len(lines), "tokenized": tokenized_lines(PlainText(lines), path), "odd": of_file}
            if seed is not None:
                random.Random(seed).shuffle(lines)
            write_lines(folder / f"{name}.{ending}", lines)
        return found

    size = _plain_size(files)
    return FolderStage(stages / "read", read, {"files": list(map(digest, files)), "shuffle": seed}, size=size)


def _plain_size(paths: Iterable[Path]) -> int:
    """Return the bytes of files after decompression, about."""
    size = 0.0
    for path in paths:
        check_file(path)
        size += path.stat().st_size * (COMPRESSION if has_compressed_name(path) else 1)
    return int(size)
