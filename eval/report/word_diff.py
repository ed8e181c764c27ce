"""Differences between two texts in words; in characters for Chinese and Japanese."""

import re
from difflib import SequenceMatcher

_UNSPACED = "\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
# Not \w+, which lacks the vowel signs of Indian scripts. U+200C and U+200D join letters.
_PUNCTUATION = r"!-/:-@\[-`{-~\u00a1-\u00bf\u2010-\u2027\u2030-\u205e"
_WORD = re.compile(rf"[{_UNSPACED}]|[{_PUNCTUATION}]|[^\s{_UNSPACED}{_PUNCTUATION}]+")


def changes(a: str, b: str) -> tuple[list[int], list[int]]:
    """Return [start, end, start, end, …] of the spans of a that b lacks, and of those of b that a lacks.

    Positions are in code points; neighbouring words are one span.
    """
    words = [[match.span() for match in _WORD.finditer(text)] for text in (a, b)]
    matcher = SequenceMatcher(None, [a[i:j] for i, j in words[0]], [b[i:j] for i, j in words[1]], autojunk=False)
    found: tuple[list[int], list[int]] = ([], [])
    for kind, *ranges in matcher.get_opcodes():
        if kind == "equal":
            continue
        for spans, its_words, start, end in zip(found, words, ranges[::2], ranges[1::2], strict=True):
            if start < end:
                spans += [its_words[start][0], its_words[end - 1][1]]
    return found
