"""Lines of text out of the formats that corpora come in."""

import re

from posnet_data_prep.sources.compressed import DAMAGED, open_binary
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import refuse_nul

_DROPPED = re.compile(r"<url>|<talkid>|<keywords>")
_KEPT_TAGS = re.compile(r"</?(?:title|description)>")
_SEGMENT = re.compile(r"<seg[^>]*>(.*)</seg>")


class Reader:
    """Reads files of one format.

    Args:
        strict: refuse invalid UTF-8 and NUL bytes; else what is invalid becomes U+FFFD, and is counted.

    Attributes:
        mended: lines that had invalid bytes.
    """

    def __init__(self, strict):
        self._strict = strict
        self.mended = 0

    def plain(self, path):
        """The lines of a text file, compressed or not, without line ends.

        Only "\\n" ends a line; a "\\r" in front of it is dropped, as is a byte order mark.

        Raises:
            UsageError: it is damaged, is not UTF-8, or has NUL bytes.
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

    def _decode(self, line, path, number):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            if self._strict:
                raise UsageError(
                    f"{path} is not UTF-8: line {number} has an invalid byte at its offset {error.start}. Convert it "
                    "first, for instance with iconv -t utf-8."
                ) from error
            self.mended += 1
            text = line.decode("utf-8", errors="replace")
        if self._strict:
            refuse_nul(text, path, number)
        return text

    def tagged(self, path):
        """IWSLT's training text: titles and descriptions are sentences too, addresses and keywords are not."""
        for line in self.plain(path):
            if not _DROPPED.search(line):
                yield _KEPT_TAGS.sub("", line)

    def segments(self, path):
        """What stands between <seg> and </seg>, with single spaces: IWSLT's xml and WMT's sgm, which is no XML.

        Entities stay what they are, as sacreBLEU leaves them.

        Raises:
            UsageError: a segment does not end in its line.
        """
        for line in self.plain(path):
            if "<seg" in line:
                match = _SEGMENT.search(line)
                if match is None:
                    raise UsageError(f"{path}: a segment does not end in its line: {line[:80]!r}. Mend the file.")
                yield " ".join(match[1].split())

    def talk_segments(self, path):
        """IWSLT's test text: :meth:`segments` in which ’ becomes ', which the original script does to both sides."""
        for line in self.segments(path):
            yield line.replace("’", "'")

    def table(self, path):
        """Rows of two columns with a tab between.

        Raises:
            UsageError: a line has not two columns.
        """
        for number, line in enumerate(self.plain(path), start=1):
            columns = line.split("\t")
            if len(columns) != 2:
                raise UsageError(
                    f"{path}: line {number} has {len(columns)} columns with tabs between, two are expected: the "
                    "sentence and its translation. Cut the others off, for instance with cut -f1,2."
                )
            yield tuple(columns)
