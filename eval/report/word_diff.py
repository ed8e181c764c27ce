"""Differences between two texts in words; in characters for Chinese and Japanese."""

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

_UNSPACED = "\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
# Not \w+, which lacks the vowel signs of Indian scripts. U+200C and U+200D join letters.
_PUNCTUATION = r"!-/:-@\[-`{-~\u00a1-\u00bf\u2010-\u2027\u2030-\u205e"
_WORD = re.compile(rf"[{_UNSPACED}]|[{_PUNCTUATION}]|[^\s{_UNSPACED}{_PUNCTUATION}]+")

_MOST = 4_000_000  # comparisons of words for one pair of texts: about a second


def changes(a: str, b: str) -> tuple[list[int], list[int]]:
    """Return [start, end, start, end, …] of the spans of a that b lacks, and of those of b that a lacks.

    Positions are in code points; neighbouring words are one span. Texts of very many or very many equal words have one
    span each, from their first difference to their last.
    """
    words = [[match.span() for match in _WORD.finditer(text)] for text in (a, b)]
    first, second = [a[i:j] for i, j in words[0]], [b[i:j] for i, j in words[1]]
    counts = Counter(second)
    pairs = sum(number * counts[word] for word, number in Counter(first).items())
    if len(first) * (len(first) + pairs) > _MOST:
        blocks: Sequence[tuple[str, int, int, int, int]] = _between_equal_ends(first, second)
    else:
        blocks = SequenceMatcher(None, first, second, autojunk=False).get_opcodes()
    found: tuple[list[int], list[int]] = ([], [])
    for kind, *ranges in blocks:
        if kind == "equal":
            continue
        for spans, its_words, start, end in zip(found, words, ranges[::2], ranges[1::2], strict=True):
            if start < end:
                spans += [its_words[start][0], its_words[end - 1][1]]
    return found


def _between_equal_ends(a: Sequence[str], b: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    """Return all between the equal beginnings and ends of two sequences as one change, in linear time."""
    least = min(len(a), len(b))
    start = next((i for i in range(least) if a[i] != b[i]), least)
    end = next((i for i in range(least - start) if a[-1 - i] != b[-1 - i]), least - start)
    return [("replace", start, len(a) - end, start, len(b) - end)]
