"""Plain text, a sentence a line: out of SGML, and whether it is a table, split into subwords or tokenized."""

import html
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import input_name, is_blank, iterate_lines

SEGMENTED = 0.05  # share of lines with marks of subwords from which on a text is not plain
TOKENIZED = 0.3  # share of lines that end in a space and a period from which on a text is tokenized

_MARKED = re.compile(r"\S@@( |$)|▁")
_SPACED_STOPS = (" .", " 。", " ।")
# What SGML and XML begin with: a declaration, or an element of the formats that have segments.
_MARKUP = re.compile(r"\s*<(\?xml|!doctype|(mteval|srcset|refset|tstset|dataset|doc|seg|tmx)(?=[\s>]))", re.I)
_OPENED = re.compile(r"<seg(?=[\s>])", re.I)
_SEGMENT = re.compile(r"<seg(?:\s[^>]*)?>(.*?)</seg>", re.I)
# Elements that tell several texts in a file apart; of <doc>, whose other attributes vary, by its system.
_TEXT = re.compile(r"<(src|ref|hyp|tuv)\b([^>]*)>|<doc\b[^>]*\bsysid=(\"[^\"]*\"|[^\s>]+)", re.I)
_ENTITY = re.compile(r"&(?:quot|apos|amp|lt|gt|#\d+|#x[0-9a-f]+);", re.I)
_NUMBER = re.compile(r"\s*[-+]?(\d+([.,]\d*)?|[.,]\d+)(e[-+]?\d+)?\s*", re.I)
_ADDRESS = re.compile(r"\s*\w+://\S+\s*")
_ENTITIES = re.compile(r"&(?:[a-z]\w+|#\d+|#x[0-9a-f]+);", re.I)


def iterate_text(path: str | Path) -> Iterator[str]:
    """Yield the lines of a text as they are asked for, see :func:`iterate_lines` and :func:`plain_lines`."""
    return plain_lines(iterate_lines(path), input_name(path))


def read_parallel(*paths: str | Path) -> list[list[str]]:
    """Return the lines of several texts that belong together line by line; refuse different numbers of lines."""
    files = [list(iterate_text(path)) for path in paths]
    if len({len(lines) for lines in files}) > 1:
        counts = ", ".join(f"{path} has {len(lines)} lines" for path, lines in zip(paths, files, strict=True))
        raise UsageError(f"{counts}, but they belong together line by line. Nothing was done; correct the files first.")
    return files


def plain_lines(lines: Iterable[str], name: object) -> Iterator[str]:
    """Yield lines of plain text; if they are SGML of WMT or XML with <seg>, its segments. Tables are refused."""
    lines = iter(lines)
    head = []
    for line in lines:
        head.append(line)
        if not is_blank(line):
            break
    lines = chain(head, lines)
    yield from (_text_of_markup if head and _MARKUP.match(head[-1]) else _refuse_table)(lines, name)


def segments(lines: Iterable[str], name: object) -> Iterator[str]:
    """Yield the texts between <seg> and </seg> with single spaces; entities stay unchanged."""
    for line in lines:
        found = _SEGMENT.findall(line)
        if len(found) < len(_OPENED.findall(line)):
            raise UsageError(f"{name}: a segment does not end in its line: {line[:80]!r}. Fix the file.")
        yield from (" ".join(text.split()) for text in found)


def _text_of_markup(lines: Iterable[str], name: object) -> Iterator[str]:
    """Yield the segments of the one text of a file."""
    texts, found = set[tuple[str, ...]](), False

    def watched() -> Iterator[str]:
        for line in lines:
            texts.update(_TEXT.findall(line))
            if len(texts) > 1:
                raise UsageError(
                    f"{name} is SGML or XML with several texts ({', '.join(sorted(set(map(_shown, texts))))}). Give "
                    "each text in a file of its own, a sentence a line."
                )
            yield line

    for segment in segments(watched(), name):
        found = True
        text = _ENTITY.sub(lambda match: html.unescape(match[0]), segment)
        yield " ".join(text.split())  # an entity may be a line break
    if not found:
        raise UsageError(f"{name} is SGML or XML without <seg>. Give plain text, a sentence a line.")


def _shown(text: tuple[str, ...]) -> str:
    element, attributes, system = text
    return f"<doc sysid={system}>" if system else f"<{element}{attributes}>"


def _refuse_table(lines: Iterable[str], name: object) -> Iterator[str]:
    """Yield lines, and refuse them if each of all, or of the first thousand, has a tab."""
    tabs, plain, first = 0, False, ""
    for line in lines:
        if not plain and not is_blank(line):
            first = first or line
            tabs, plain = tabs + 1, "\t" not in line
            if tabs == 1000 and not plain:
                break
        yield line
    if tabs > 1 and not plain:
        column = next(iter(columns_of_text(first.split("\t"))), 1)
        raise UsageError(
            f"{name} is a table: each line has a tab. Give a file of text alone, for instance column {column}, which "
            f"cut -f{column} prints."
        )


def columns_of_text(columns: Iterable[str]) -> list[int]:
    """Return the numbers, from 1, of the columns of a row that are not blank, scores, other numbers or addresses."""
    return [
        number
        for number, column in enumerate(columns, start=1)
        if not (is_blank(column) or is_number(column) or _ADDRESS.fullmatch(column))
    ]


def is_number(column: str) -> bool:
    """Return whether a column of a table is a number."""
    return bool(_NUMBER.fullmatch(column))


class PlainText:
    """Counts all lines, those with marks of BPE or SentencePiece, and those that end as tokenized ones do."""

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self.lines = self.segmented = self.tokenized = 0
        for line in lines:
            self.add(line)

    def add(self, line: str) -> None:
        """Count a line."""
        self.lines += 1
        self.segmented += has_subwords(line)
        self.tokenized += line.endswith(_SPACED_STOPS)

    @property
    def is_segmented(self) -> bool:
        """Whether more than :data:`SEGMENTED` of the lines have marks of subwords."""
        return self.segmented > SEGMENTED * self.lines

    @property
    def is_tokenized(self) -> bool:
        """Whether more than :data:`TOKENIZED` of the lines end in a space and a period."""
        return self.tokenized > TOKENIZED * self.lines


def has_subwords(line: str) -> bool:
    """Return whether a line has marks of BPE or SentencePiece."""
    return ("@@" in line or "▁" in line) and bool(_MARKED.search(line))


def find_entity(line: str) -> re.Match[str] | None:
    """Return where a line has its first HTML entity, such as ``&amp;`` or ``&#8220;``; None if it has none."""
    matches = _ENTITIES.finditer(line) if "&" in line else ()
    return next((match for match in matches if html.unescape(match[0]) != match[0]), None)
