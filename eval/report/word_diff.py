"""Which words of two texts differ; of Chinese and Japanese, which characters."""

import re
from difflib import SequenceMatcher

_UNSPACED = "\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
# Not \w+: Python's \w leaves out the vowel signs of Indian scripts. U+200C and U+200D join letters.
_PUNCTUATION = r"!-/:-@\[-`{-~\u00a1-\u00bf\u2010-\u2027\u2030-\u205e"
_WORD = re.compile(rf"[{_UNSPACED}]|[{_PUNCTUATION}]|[^\s{_UNSPACED}{_PUNCTUATION}]+")


def changes(a, b):
    """Where two texts differ.

    Args:
        a, b: texts.

    Returns:
        For a and for b: [start, end, start, end, …] of what the other lacks, in code points, neighbours joined.
    """
    words = [[match.span() for match in _WORD.finditer(text)] for text in (a, b)]
    matcher = SequenceMatcher(None, [a[i:j] for i, j in words[0]], [b[i:j] for i, j in words[1]], autojunk=False)
    found = [], []
    for kind, *ranges in matcher.get_opcodes():
        if kind == "equal":
            continue
        for spans, its_words, start, end in zip(found, words, ranges[::2], ranges[1::2], strict=True):
            if start < end:
                spans += [its_words[start][0], its_words[end - 1][1]]
    return found
