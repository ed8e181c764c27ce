"""Terminology: terms of a language in a text, and those that a translation must have."""

import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import regex

from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.shared.files import input_name, is_blank, iterate_lines, refuse_half_characters
from posnet_fairseq.text.tokenizers import WITHOUT_INVISIBLE

# What words consist of where spaces separate them, unlike Chinese.
_LETTER = r"[[\w\p{M}]--[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]"
_IS_LETTER = regex.compile(_LETTER, regex.V1)
# Places in a text where a term may begin or end: not between two letters of a word, or two characters of a token.
OF_WORDS = regex.compile(rf"(?<!{_LETTER})|(?!{_LETTER})", regex.V1)
OF_TOKENS = regex.compile(r"(?<!\S)|(?!\S)")


def is_letter(character: str) -> bool:
    """Return whether a character, or "", is a letter, digit or mark of a language with spaces between words."""
    return _IS_LETTER.match(character) is not None


def read_terms(path: str | Path) -> dict[str, str]:
    """Return the target term of each source term, of a file with lines SOURCE TERM, tab, TARGET TERM."""
    name, terms = input_name(path), dict[str, str]()
    for number, line in enumerate(iterate_lines(path), 1):
        if is_blank(line):
            continue
        place = f"{option('terms')} {name}, line {number:,},"
        source, *others = map(normal_term, line.split("\t"))
        if len(others) != 1 or not source or not others[0]:
            raise UsageError(f"{place} is {line!r:.50}. Give a source term, a tab and a target term in each line.")
        if terms.setdefault(source, others[0]) != others[0]:
            both = f"{terms[source]!r} and {others[0]!r}"
            raise UsageError(f"{place} gives {source!r} a second target term, {both}. Give one.")
    return terms


def checked_terms(terms: object) -> dict[str, str]:
    """Return terms that were given to a function, as :func:`read_terms`."""
    pairs: Any = terms.items() if isinstance(terms, Mapping) else [(terms, None)]
    for source, target in pairs:
        if not all(isinstance(term, str) and normal_term(term) for term in (source, target)):
            given = f"{source!r}: {target!r}" if isinstance(terms, Mapping) else repr(terms)
            raise UsageError(
                f"{option('terms')} {given:.50}: give a dict with a target term, a str, for each source term."
            )
    found: dict[str, str] = {}
    for source, target in pairs:
        refuse_half_characters(option("terms"), source, target)
        if found.setdefault(normal_term(source), normal_term(target)) != normal_term(target):
            raise UsageError(f"{option('terms')} gives {normal_term(source)!r:.50} two target terms. Give one.")
    return found


def normal_term(term: str) -> str:
    """Return a term in Unicode's normal form NFC, without spaces around it and with single ones between its words."""
    return unicodedata.normalize("NFC", " ".join(term.split()))


def _read(text: str) -> str:
    """Return a text as it is compared with others, without invisible characters."""
    return normal_term(text.translate(WITHOUT_INVISIBLE))


class Occurrences:
    """Finds terms in texts, at `edges`, which is :data:`OF_WORDS` or :data:`OF_TOKENS`.

    Of terms that overlap, the longest that begins first is found. Upper and lower case differ.
    """

    def __init__(self, terms: Collection[str], edges: regex.Pattern[str]) -> None:
        self._terms, self._edges = {text: term for term in terms if (text := _read(term))}, edges
        self._longest = max(map(len, self._terms), default=0)
        self._begins = {term[: self._places(term)[1]] for term in self._terms}

    def __call__(self, text: str) -> list[str]:
        """Return the terms in a text, one that is there twice twice."""
        text = _read(text)
        places, found, end = self._places(text), list[str](), 0
        for number, (start, following) in enumerate(pairwise(places)):
            if start < end or text[start:following] not in self._begins:
                continue
            last = bisect_right(places, start + self._longest)
            for end_of_term in reversed(places[number + 1 : last]):
                if (term := text[start:end_of_term]) in self._terms:
                    found.append(self._terms[term])
                    end = end_of_term
                    break
        return found

    def _places(self, text: str) -> list[int]:
        return [match.start() for match in self._edges.finditer(text)]


def across(terms: Collection[str], edges: regex.Pattern[str]) -> Callable[[str, str], bool]:
    """Return a function that tells whether two texts, one after the other, have a term that neither has."""
    occurrences = Occurrences(terms, edges)
    return lambda first, second: occurrences(first + second) != occurrences(first) + occurrences(second)


def targets_of(terms: Mapping[str, str], lines: Sequence[str], edges: regex.Pattern[str]) -> list[list[str]]:
    """Return for each line the target terms of the source terms in it, one that is there twice twice."""
    occurrences = Occurrences(terms.keys(), edges)
    return [[terms[term] for term in occurrences(line)] for line in lines]


def unmet(terms: Sequence[str], text: str, edges: regex.Pattern[str]) -> tuple[str, ...]:
    """Return the terms that a text lacks, a term required twice and present once is listed once."""
    lacking = Counter(terms)
    lacking.subtract(Occurrences(lacking.keys(), edges)(text))
    return tuple((+lacking).elements())
