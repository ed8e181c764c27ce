"""Limits on the lengths of training pairs: the rules of Moses' clean-corpus-n.perl."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

LONGEST_WORD = 1000  # characters
DROPPED = "dropped, "  # beginning of the name of a count, in front of the reason


@dataclass(frozen=True)
class Limits:
    """Limits that a training pair must keep.

    Args:
        min_length, max_length: numbers of tokens that each side may have.
        max_ratio: largest number of tokens of one side per token of the other.
    """

    min_length: int
    max_length: int
    max_ratio: float

    def fault(self, source: str, target: str) -> str | None:
        """The limit that a pair breaks: ``empty``, ``length``, ``ratio``, ``word``, or None.

        Args:
            source, target: tokens between spaces.
        """
        shorter, longer = sorted(len(side.split()) for side in (source, target))
        if shorter == 0:
            return "empty"
        if shorter < self.min_length or longer > self.max_length:
            return "length"
        if longer > self.max_ratio * shorter:
            return "ratio"
        return "word" if has_overlong_word(source, target) else None


def dropped_pairs(*counts: Mapping[str, int]) -> dict[str, int]:
    """Numbers of dropped pairs, by reason, from the counts of stages: those named ``dropped, REASON``."""
    found: Counter[str] = Counter()
    for of in counts:
        found.update({what.removeprefix(DROPPED): count for what, count in of.items() if what.startswith(DROPPED)})
    return dict(found)


def has_overlong_word(*lines: str) -> bool:
    """Whether a line has a word of more than 1,000 characters, for which BPE may take minutes."""
    long = [line for line in lines if len(line) > LONGEST_WORD]
    return any(len(word) > LONGEST_WORD for line in long for word in line.split())
