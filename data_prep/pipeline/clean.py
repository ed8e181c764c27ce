"""Which pairs are good to learn from: the rules of Moses' clean-corpus-n.perl."""

from dataclasses import dataclass

LONGEST_WORD = 1000  # characters


@dataclass(frozen=True)
class Limits:
    """Lengths of a good pair.

    Args:
        min_length, max_length: tokens of either side.
        max_ratio: the most tokens of one side per token of the other.
    """

    min_length: int
    max_length: int
    max_ratio: float

    def fault(self, source, target):
        """What is wrong with a pair of lines of tokens: ``empty``, ``length``, ``ratio``, ``word`` or None."""
        sides = [side.split() for side in (source, target)]
        shorter, longer = sorted(map(len, sides))
        if shorter == 0:
            return "empty"
        if shorter < self.min_length or longer > self.max_length:
            return "length"
        if longer > self.max_ratio * shorter:
            return "ratio"
        return "word" if has_monster(source, target) else None


def has_monster(*lines):
    """Whether a line has a word so long that it is none; BPE would take minutes for some."""
    long = [line for line in lines if len(line) > LONGEST_WORD]
    return any(len(word) > LONGEST_WORD for line in long for word in line.split())
