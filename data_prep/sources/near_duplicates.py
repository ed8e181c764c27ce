"""Search for lines that have nearly the same words."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

# Dice coefficient of the sets of words of near-duplicates, at least.
LEAST = 0.8

_WORD = re.compile(r"\w+")
_DIGITS = re.compile(r"\d+")


class NearDuplicates:
    """Finds near-duplicates of given lines: Dice coefficient of the sets of words of 0.8 or more.

    Case, punctuation and the values of numbers are ignored. A line without words has no near-duplicates.

    Args:
        lines: lines to compare others with.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        known = list(dict.fromkeys(map(_words, lines)))
        self._frequency = Counter(word for words in known for word in words)
        self._by_word: dict[str, list[frozenset[str]]] = defaultdict(list)
        for words in known:
            for word in self._rarest(words):
                self._by_word[word].append(words)

    def __contains__(self, line: str) -> bool:
        """Whether a line is a near-duplicate of one of the lines."""
        ours = _words(line)
        candidates = (theirs for word in self._rarest(ours) for theirs in self._by_word.get(word, ()))
        return any(2 * len(ours & theirs) >= LEAST * (len(ours) + len(theirs)) for theirs in candidates)

    def _rarest(self, words: frozenset[str]) -> Sequence[str]:
        """Words of which near-duplicates share one: prefix filtering (Bayardo et al., 2007).

        Sets with a Dice coefficient of t share t / (2 - t) of the words of each, so the rarest words of the one, up to
        one more than the other set can lack, and those of the other have a word in common.
        """
        ordered = sorted(words, key=lambda word: (self._frequency[word], word))
        lacking = int(len(ordered) * (1 - LEAST / (2 - LEAST)) + 1e-9)
        return ordered[: lacking + 1]


def _words(line: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_DIGITS.sub("0", line.lower())))
