"""Plain text, a sentence a line: out of SGML and of annotated translations; whether it is split or tokenized."""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from posnet_fairseq.shared.errors import UsageError, about, counted
from posnet_fairseq.shared.files import input_name, is_blank, iterate_lines
from posnet_fairseq.shared.schema import parse_json

SEGMENTED = 0.05  # share of lines with marks of subwords from which on a text is not plain
TOKENIZED = 0.3  # share of lines that end in a space and a period from which on a text is tokenized
LINE = re.compile(r"[^\n\0\ud800-\udfff]*")  # what a line of a file in UTF-8 can be

_MARKED = re.compile(r"\S@@( |$)|▁")
_SPACED_STOPS = (" .", " 。", " ।")
# What SGML and XML begin with: a declaration, or an element of the formats that have segments.
_MARKUP = re.compile(r"\s*<(\?xml|!doctype|(mteval|srcset|refset|tstset|dataset|doc|seg|tmx)(?=[\s>]))", re.I)
_OPENED = re.compile(r"<seg(?=[\s/>])", re.I)
_SEGMENT = re.compile(r"<seg(?:\s[^>]*?)?(?:/>|(?<!/)>(.*?)</seg>)", re.I)  # <seg/> is empty
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>")
_OPEN_TEXT = re.compile(r"<(src|ref|hyp|tuv)\b[^>]*$", re.I)
# Elements that tell several texts in a file apart; of <doc>, whose other attributes vary, by its system.
_TEXT = re.compile(r"<(src|ref|hyp|tuv)\b([^>]*)>|<doc\b[^>]*\bsysid=(\"[^\"]*\"|[^\s>]+)", re.I)
_XML_ENTITY = re.compile(r"&(?:quot|apos|amp|lt|gt|#\d+|#x[0-9a-f]+);", re.I)  # that XML itself defines
_HTML_ENTITY = re.compile(r"&(?:[a-z]\w+|#\d+|#x[0-9a-f]+);", re.I)
_NUMBER = re.compile(r"\s*[-+]?(\d+([.,]\d*)?|[.,]\d+)(e[-+]?\d+)?\s*", re.I)
_ADDRESS = re.compile(r"\s*\w+://\S+\s*")
# What posnet-translate prints with --nbest, --per-token and --print-alignment (posnet_fairseq.inference.translation).
_BAR = " ||| "
_SCORE = re.compile(r"-?\d+\.\d{6}|-?inf|nan")
_LISTED = re.compile(rf"(\d+) \|\|\| (.*) \|\|\| (?:{_SCORE.pattern})")
_ALIGNED = re.compile(r"\d+-\d+(?: \d+-\d+)*")
_NOTHING = re.compile(r"(?: \|\|\| )+$")  # beside a blank line
_JSON = re.compile(r'\s*\{"line": ?\d+, ?"text": ?"')  # and with --json
# What every line of a file may have that is not text alone, and how to get the text.
_NOT_TEXT: dict[str, Callable[[str], object]] = {
    "is a table: each line has a tab. Give a file of text alone, for instance column {column}, which cut "
    "-f{column} prints.": lambda line: "\t" in line,
    "is a list of n best translations: each line begins with a number and |||. Give a file of text alone.": (
        re.compile(r"\d+ \|\|\| ").match
    ),
    "has a number in each line, as posnet-translate --score-translations prints them. Give a file of text.": (
        _SCORE.fullmatch
    ),
}


def iterate_text(path: str | Path) -> Iterator[str]:
    """Yield the lines of a text as they are asked for, see :func:`iterate_lines` and :func:`plain_lines`."""
    return plain_lines(iterate_lines(path), input_name(path))


def is_markup(path: str | Path) -> bool:
    """Return whether a file is SGML or XML, of which :func:`iterate_text` yields the segments."""
    lines = (line for line in iterate_lines(path) if not is_blank(line))
    return _MARKUP.match(next(lines, "")) is not None


def read_parallel(*paths: str | Path) -> list[list[str]]:
    """Return the lines of several texts that belong together line by line; refuse different numbers of lines."""
    files = [list(iterate_text(path)) for path in paths]
    _check_parallel(paths, files)
    return files


def _check_parallel(paths: Sequence[str | Path], files: Sequence[Sequence[object]]) -> None:
    """Refuse different numbers of lines in what was read from files that belong together line by line."""
    if len({len(lines) for lines in files}) > 1:
        counts = ", ".join(
            f"{path} has {counted(len(lines), 'line')}" for path, lines in zip(paths, files, strict=True)
        )
        raise UsageError(f"{counts}, but they belong together line by line. Nothing was done; correct the files first.")


def read_candidates(*paths: str | Path, source: str | Path | None = None) -> tuple[list[list[str]], list[str]]:
    """Return the candidates of each line in all files of candidates, those of the first file first, and its source.

    Without a file of sources, these are "".
    """
    systems = [list(_candidates(path)) for path in paths]
    sources = list(iterate_text(source)) if source else []
    _check_parallel([*paths, source] if source else paths, [*systems, sources] if source else systems)
    joined = [[text for texts in of_line for text in texts] for of_line in zip(*systems, strict=True)]
    return joined, sources or [""] * len(joined)


def _candidates(path: str | Path) -> Iterator[list[str]]:
    """Yield the candidates of each line, best first, of what posnet-translate printed with --nbest or --json."""
    number, texts = 0, list[str]()
    for place, line in enumerate(iterate_lines(path), 1):
        with about(f"{input_name(path)}, line {place:,}"):
            of_line, text = _text_of(line)
        if text is None or of_line not in (number, number + 1) or (of_line > number and not texts):
            raise UsageError(
                f"{input_name(path)}, line {place:,}, is no candidate for line {number} or {number + 1} of the source, "
                "counted from 0. Give what posnet-translate prints with --nbest or --json, whole."
            )
        if of_line > number:
            yield texts
            number, texts = of_line, []
        texts.append(text)
    if texts:
        yield texts


def plain_lines(lines: Iterable[str], name: object) -> Iterator[str]:
    """Yield lines of plain text.

    If they are SGML of WMT or XML with <seg>, these are its segments; if they are what posnet-translate prints with
    --nbest, --print-alignment, --per-token or --json, the translations in it, the best one of each line. Tables are
    refused.
    """
    lines = iter(lines)
    head = []
    for line in lines:
        head.append(line)
        if not is_blank(line) and not line.endswith(_BAR):  # as the alignment of a blank line
            break
    lines = chain(head, lines)
    last = head[-1] if head else ""
    if _MARKUP.match(last):
        yield from _text_of_markup(lines, name)
    else:
        is_annotated = _JSON.match(last) or (_BAR in last and _text_of(last) != (None, last))
        yield from _refuse_others(_text_of_translations(lines, name) if is_annotated else lines, name)


def _text_of_translations(lines: Iterable[str], name: object) -> Iterator[str]:
    """Yield the best translation of each line that posnet-translate translated, out of what it printed."""
    before: int | None = None  # number of the line that the translation above is of, if lines have numbers
    for place, line in enumerate(lines, 1):
        with about(f"{name}, line {place:,}"):
            number, text = _text_of(line)
            if text is None or text == line or (place > 1 and (number is None) != (before is None)):
                raise UsageError(
                    "posnet-translate prints no such line after those above, which have what --nbest, "
                    "--print-alignment, --per-token or --json add. Give an output as it was printed, or plain text."
                )
            following = 0 if before is None else before + 1
            if number not in (None, before, following):
                raise UsageError(
                    f"it has number {number} where {following} should be. Give the whole output of one run of "
                    "posnet-translate."
                )
        if number is None or number != before:  # the best one comes first
            yield text
        before = number


def _text_of(line: str) -> tuple[int | None, str | None]:
    """Return number and text of a line that posnet-translate printed; the text is None, or the line, if it did not."""
    if _JSON.match(line):
        content: Any = parse_json(line, "it")
        number, text = content["line"], content["text"]
        return number, text if LINE.fullmatch(text) and "score" in content else None
    if (rest := _NOTHING.sub("", line)) and _ALIGNED.fullmatch(rest.rpartition(_BAR)[2]):
        rest = rest.rpartition(_BAR)[0]
    before, _, last = rest.rpartition(_BAR)
    scores = last.split(" ")
    start, *tokens = before.rsplit(" ", len(scores))  # they may be |||, but are as many as the scores
    if all(map(_SCORE.fullmatch, scores)) and start.endswith(" |||") and (len(tokens) > 1 or tokens == ["</s>"]):
        rest = start.removesuffix(" |||")
    listed = _LISTED.fullmatch(rest)
    return (int(listed[1]), listed[2]) if listed else (None, rest)


def segments(lines: Iterable[str], name: object) -> Iterator[str]:
    """Yield the texts between <seg> and </seg> with single spaces; entities stay unchanged."""
    for line in lines:
        line = _CDATA.sub(lambda match: html.escape(match[1], quote=False), line)
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
            if unfinished := _OPEN_TEXT.search(line):
                raise UsageError(f"{name}: <{unfinished[1]} does not end in its line: {line[:80]!r}. Fix the file.")
            if len(texts) > 1:
                raise UsageError(
                    f"{name} is SGML or XML with several texts ({', '.join(sorted(set(map(_shown, texts))))}). Give "
                    "each text in a file of its own, a sentence a line."
                )
            yield line

    for segment in segments(watched(), name):
        found = True
        text = _XML_ENTITY.sub(lambda match: html.unescape(match[0]), segment)
        yield " ".join(text.split())  # an entity may be a line break
    if not found:
        raise UsageError(f"{name} is SGML or XML without <seg>. Give plain text, a sentence a line.")


def _shown(text: tuple[str, ...]) -> str:
    element, attributes, system = text
    return f"<doc sysid={system}>" if system else f"<{element}{attributes}>"


def _refuse_others(lines: Iterable[str], name: object) -> Iterator[str]:
    """Yield lines; refuse them if all, or the first thousand, have the same that tells them from text."""
    count, kinds, first = 0, _NOT_TEXT, ""
    for line in lines:
        if kinds and not is_blank(line):
            first = first or line
            count, kinds = count + 1, {why: has for why, has in kinds.items() if has(line)}
            if count == 1000 and kinds:
                break
        yield line
    if count > 1 and kinds:
        column = next(iter(columns_of_text(first.split("\t"))), 1)
        raise UsageError(f"{name} {next(iter(kinds)).format(column=column)}")


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
        self.segmented += _has_subwords(line)
        self.tokenized += line.endswith(_SPACED_STOPS)

    @property
    def is_segmented(self) -> bool:
        """Whether more than :data:`SEGMENTED` of the lines have marks of subwords."""
        return self.segmented > SEGMENTED * self.lines

    @property
    def is_tokenized(self) -> bool:
        """Whether more than :data:`TOKENIZED` of the lines end in a space and a period."""
        return self.tokenized > TOKENIZED * self.lines


def _has_subwords(line: str) -> bool:
    """Return whether a line has marks of BPE or SentencePiece."""
    return ("@@" in line or "▁" in line) and bool(_MARKED.search(line))


def find_entity(line: str) -> re.Match[str] | None:
    """Return where a line has its first HTML entity, such as ``&amp;`` or ``&#8220;``; None if it has none."""
    matches = _HTML_ENTITY.finditer(line) if "&" in line else ()
    return next((match for match in matches if html.unescape(match[0]) != match[0]), None)
