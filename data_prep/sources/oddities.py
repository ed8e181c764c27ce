"""What text files have that is no text: remains of markup, of other encodings, of tables of other forms."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from posnet_fairseq.text.plain import find_entity, is_number

CSV_COMMAND = "docs/data.md has a command"  # that writes a table without the quotation marks of CSV
_AROUND = 30  # characters of a line shown in front of what is odd, and behind it
# UTF-8 that was read as Windows-1252 or Latin-1: what its bytes 80 to BF become. Only Ã, Â and â€ begin letters and
# marks of Western European text; others, which real text has in front of quotation marks, count from two in a row on.
_CONTINUED = "[\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
_MOJIBAKE = re.compile(
    f"Ã(?![”’…–—]){_CONTINUED}|Â[\x80-\xbf]|â€{_CONTINUED}|(?:[Â-ß]{_CONTINUED}|[à-ï]{_CONTINUED}{{2}}|ð{_CONTINUED}{{3}}){{2}}"
)
_MAYBE = re.compile(f"[Â-ð]{_CONTINUED}")  # found ten times as fast
_LOST = re.compile("\ufffd")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
# An end tag, an empty element, a tag with attributes, and elements that often lack an end tag: <file> may be text.
_TAG = re.compile(
    r"</[a-z][\w:-]*\s*>|<[a-z][\w:-]*\s*/>|<[a-z][\w:-]*\s+[\w:-]+\s*=[^<>]*>|<(?:br|hr|li|p|td|tr)>", re.I
)

# Of each kind what finds the first one in a line, and is asked only about few lines.
_KINDS: dict[str, Callable[[str], re.Match[str] | None]] = {
    "HTML entities": find_entity,
    "UTF-8 read in another encoding": lambda line: _MOJIBAKE.search(line) if _MAYBE.search(line) else None,
    "characters U+FFFD, which stand for lost ones": lambda line: _LOST.search(line) if "\ufffd" in line else None,
    "control characters": lambda line: None if line.isprintable() else _CONTROL.search(line),
    "tags of HTML or XML": lambda line: _TAG.search(line) if "<" in line else None,
}


class Oddities:
    """Counts the lines of a text with each kind of remains.

    Attributes:
        found: of each kind, by its name, the ``lines``, and ``number`` (from 1) and ``text`` of the first one, cut.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.found: dict[str, dict[str, Any]] = {}

    def add(self, line: str) -> None:
        """Look at the next line."""
        self.lines += 1
        if line.isascii() and line.isprintable() and "&" not in line and "<" not in line:  # mostly
            return
        for kind, find in _KINDS.items():
            if match := find(line):
                first = {"lines": 0, "number": self.lines, "text": excerpt(line, *match.span())}
                self.found.setdefault(kind, first)["lines"] += 1


def excerpt(line: str, begin: int, end: int) -> str:
    """Return the part of a line around some characters, in quotation marks; control characters are escaped."""
    begin, end = max(0, begin - _AROUND), end + _AROUND
    return f"{'... ' * (begin > 0)}{line[begin:end]!r}{' ...' * (end < len(line))}"


class TableForm:
    """Looks at the rows of a table of two columns for those of CSV, and for a first column that is no text."""

    def __init__(self) -> None:
        self._rows = self._all_quoted = self._doubled = self._numbered = 0
        self._first = ""  # row with quotation marks of CSV, as it is shown

    def add(self, row: Sequence[str]) -> None:
        """Look at the next row."""
        self._rows += 1
        source, target = row
        if self._numbered == self._rows - 1:
            self._numbered += is_number(source) and not is_number(target)
        if source[:1] == '"' or target[:1] == '"':
            quoted = [column for column in row if is_quoted(column)]
            doubled = any('""' in column[1:-1] for column in quoted)
            self._doubled += doubled
            self._all_quoted += len(quoted) == len(row)
            if quoted and (doubled or not self._first) and self._doubled <= 1:
                self._first = f"line {self._rows}: {excerpt(quoted[0], 0, 0)}"

    def remarks(self) -> Iterator[str]:
        """Yield what is said of the table behind its name, if there is anything."""
        is_all_quoted = self._all_quoted == self._rows > 1
        if self._doubled or is_all_quoted:
            rows = self._rows if is_all_quoted else self._doubled
            yield (
                f"looks written as CSV: {rows:,} of {self._rows:,} lines have quotation marks around columns, such as "
                f"{self._first}. They are taken for text. Write the table without them ({CSV_COMMAND})"
            )
        if self._numbered == self._rows > 1:
            yield (
                "has numbers only in its first column, as scores and identifiers are. Give the columns of the sentence "
                "and its translation, for instance with cut -f2,3"
            )


def is_quoted(column: str) -> bool:
    """Return whether a column has quotation marks around it as in CSV, with those within doubled."""
    return len(column) > 1 and column[0] == column[-1] == '"' and '"' not in column[1:-1].replace('""', "")
