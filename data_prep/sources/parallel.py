"""Sets of sentence pairs, written to a file for each language."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from posnet_data_prep.sources.readers import Reader
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import ProgressReporter, shown
from posnet_fairseq.text.plain import PlainText

BETWEEN_REPORTS = 10_000  # lines


@dataclass(frozen=True)
class Part:
    """Files that hold a part of a set.

    Args:
        title: name of the part in reports and records.
        form: method of :class:`Reader` that reads the files; ``table`` reads both sides from one.
        paths: files of source and target, or one table.
    """

    title: str
    form: str
    paths: Sequence[Path]

    def pairs(self, reader: Reader) -> Iterator[tuple[str, ...]]:
        """Sentence pairs of the files.

        Raises:
            UsageError: a file is malformed, or the two have different numbers of lines.
        """
        columns = [getattr(reader, self.form)(path) for path in self.paths]
        return columns[0] if self.form == "table" else _aligned(columns, self.paths)


def write_set(
    folder: Path, name: str, languages: Sequence[str], reader: Reader, parts: Sequence[Part], report: ProgressReporter
) -> dict[str, Any]:
    """Write all parts of a set, one after the other, to the files NAME.LANGUAGE.

    Args:
        folder: existing folder for the files.
        name: name of the set.
        languages: source and target.
        reader: reads the parts.
        parts: parts, in order.
        report: shows progress.

    Returns:
        ``lines``, the number of pairs; ``corpora``, that of each part by its title; and ``tokenized``, the lines of
        each file that seems to be tokenized already.

    Raises:
        UsageError: a file is malformed, or split into subwords.
    """
    counts: dict[str, int] = {}
    tokenized: dict[str, int] = {}
    with ExitStack() as stack:
        files = [
            stack.enter_context(open(folder / f"{name}.{language}", "w", encoding="utf-8", newline="\n"))
            for language in languages
        ]
        for part in parts:
            lines = 0
            watched = [PlainText() for _ in languages]
            with report.stage(f"read {part.title}") as bar:
                for pair in part.pairs(reader):
                    for file, text, line in zip(files, watched, pair, strict=True):
                        text.add(line)
                        file.write(f"{line}\n")
                    lines += 1
                    if lines % BETWEEN_REPORTS == 0:
                        bar.move_to(lines)
                bar.move_to(lines)
            counts[part.title] = counts.get(part.title, 0) + lines
            for number, text in enumerate(watched):
                tokenized |= tokenized_lines(text, part.paths[min(number, len(part.paths) - 1)])
    return {"lines": sum(counts.values()), "corpora": counts, "tokenized": tokenized}


def tokenized_lines(text: PlainText, path: Path) -> dict[str, int]:
    """The number of lines of a file that seems to be tokenized already, by its name; nothing for other files.

    Raises:
        UsageError: the file is split into subwords.
    """
    if text.is_segmented:
        raise UsageError(
            f"{path} is split into subwords ({text.segmented:,} of {text.lines:,} lines have @@ or ▁), and would be "
            "split again. Give the plain text that it was made of."
        )
    return {shown(path.name): text.tokenized} if text.is_tokenized else {}


def _aligned(columns: Sequence[Iterator[str]], paths: Sequence[Path]) -> Iterator[tuple[str, ...]]:
    """Lines of several files with equal numbers.

    Raises:
        UsageError: a file has more lines than another.
    """
    for number, row in enumerate(zip_longest(*columns), start=1):
        if None in row:
            shorter = paths[row.index(None)]
            longer = next(path for path in paths if path != shorter)
            raise UsageError(
                f"{shorter} has {number - 1:,} lines, {longer} has more, but they belong together line by line. Fix "
                "the files first."
            )
        yield row
