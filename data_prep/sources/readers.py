"""Readers of the formats that corpora come in."""

import re
from collections.abc import Iterator
from pathlib import Path

from posnet_fairseq.shared.compressed import DAMAGED, open_binary
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import refuse_nul
from posnet_fairseq.text import plain

_DROPPED = re.compile(r"<url>|<talkid>|<keywords>")
_KEPT_TAGS = re.compile(r"</?(?:title|description)>")


class Reader:
    """Reads lines of text from files, one method for each format.

    Args:
        strict: refuse invalid UTF-8 and NUL bytes; otherwise invalid bytes become U+FFFD.

    Attributes:
        repaired: number of lines that had invalid bytes.
    """

    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self.repaired = 0

    def plain(self, path: Path) -> Iterator[str]:
        """Lines of a text file, compressed or not, without line ends.

        Only "\\n" ends a line; a "\\r" in front of it is dropped, as is a byte order mark.

        Raises:
            UsageError: the file is damaged, is not UTF-8, or has NUL bytes.
        """
        number = 0
        try:
            with open_binary(path) as file:
                for number, line in enumerate(file, start=1):
                    line = line.removesuffix(b"\n").removesuffix(b"\r")
                    yield self._decode(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line, path, number)
        except (*DAMAGED, OSError) as error:
            if isinstance(error, OSError) and error.filename:
                raise
            raise UsageError(
                f"{path} is damaged behind line {number} ({error or type(error).__name__}). Copy it again."
            ) from error

    def _decode(self, line: bytes, path: Path, number: int) -> str:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            if self._strict:
                raise UsageError(
                    f"{path} is not UTF-8: line {number} has an invalid byte at its offset {error.start}. Convert it "
                    "first, for instance with iconv -t utf-8."
                ) from error
            self.repaired += 1
            text = line.decode("utf-8", errors="replace")
        if self._strict:
            refuse_nul(text, path, number)
        return text

    def own(self, path: Path) -> Iterator[str]:
        """Lines of a user's text, which may be SGML, see :func:`posnet_fairseq.text.plain.plain_lines`."""
        return plain.plain_lines(self.plain(path), path)

    def tagged(self, path: Path) -> Iterator[str]:
        """Sentences of IWSLT's training text, with titles and descriptions, without addresses and keywords."""
        for line in self.plain(path):
            if not _DROPPED.search(line):
                yield _KEPT_TAGS.sub("", line)

    def segments(self, path: Path) -> Iterator[str]:
        """Segments of IWSLT's xml and WMT's sgm, which is no XML, see :func:`posnet_fairseq.text.plain.segments`.

        Entities stay unchanged, as sacreBLEU leaves them.
        """
        return plain.segments(self.plain(path), path)

    def talk_segments(self, path: Path) -> Iterator[str]:
        """IWSLT's test text: :meth:`segments` with ’ replaced by ', as the original script does on both sides."""
        for line in self.segments(path):
            yield line.replace("’", "'")

    def table(self, path: Path) -> Iterator[tuple[str, str]]:
        """Pairs of a file with two columns that a tab separates.

        Raises:
            UsageError: a line has one column, or more than two.
        """
        for number, line in enumerate(self.plain(path), start=1):
            columns = line.split("\t")
            if len(columns) != 2:
                raise UsageError(
                    f"{path}: line {number} has {len(columns)} columns with tabs between, two are expected: the "
                    "sentence and its translation. Cut the others off, for instance with cut -f1,2."
                )
            yield columns[0], columns[1]
