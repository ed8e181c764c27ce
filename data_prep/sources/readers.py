"""Readers of the formats that corpora come in."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from posnet_data_prep.sources.oddities import CSV_COMMAND
from posnet_fairseq.shared.compressed import damage_refused, open_binary
from posnet_fairseq.shared.errors import UsageError, counted
from posnet_fairseq.shared.files import iterate_lines
from posnet_fairseq.text.plain import columns_of_text, segments

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
                f"{path}: line {number} has {counted(len(columns), 'column')} with tabs "
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
