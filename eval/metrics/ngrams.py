"""Counts of the n-grams that two texts have in common, for many pairs of texts at once."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from posnet_eval.metrics.base import FloatArray

_BITS = 62  # of an integer that holds the number of a pair, an n-gram and a side
_GAP = "\0"


def matches(pairs: Sequence[tuple[str, str]], order: int) -> FloatArray | None:
    """Count the n-grams that both texts of each pair have in common.

    An n-gram counts as often as it occurs in the text that has it less often (clipped counts).

    The longest n-grams are written as integers, made of the number of the pair and of the characters, and sorted once.
    N-grams that begin with the same n characters are then neighbours, for every n.

    Args:
        pairs: P pairs of texts.
        order: N, length of the longest n-grams in characters.

    Returns:
        (P, N) counts for n = 1 to N; None if the texts have too many different characters for 64-bit integers.
    """
    # Gaps as long as an n-gram separate the texts: no n-gram reaches into the next one.
    text = "".join(side + _GAP * order for pair in pairs for side in pair)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    numbers = np.cumsum(np.bincount(codes) > 0) - 1  # of the characters that occur; 0 is the gap
    width = int(numbers[-1]).bit_length()  # bits of a character
    lengths = np.array([len(side) + order for pair in pairs for side in pair])
    if len(pairs).bit_length() + order * width + 1 > _BITS or (codes > 0).sum() != (lengths - order).sum():
        return None
    characters = np.append(numbers[codes], [0] * order)
    owners = np.repeat(np.arange(2 * len(pairs)), lengths)  # pair and side
    keys = owners >> 1
    for place in range(order):
        keys = keys << width | characters[place : place + len(codes)]
    keys = (keys << 1 | owners & 1)[codes > 0]
    keys.sort()
    seconds = np.append(0, np.cumsum(keys & 1))  # n-grams of second sides so far
    found = np.zeros((len(pairs), order))
    for n in range(1, order + 1):
        grams = keys >> 1 + (order - n) * width
        changes = np.flatnonzero(np.diff(grams, prepend=-1))
        ends = np.append(changes[1:], len(grams))
        second = seconds[ends] - seconds[changes] if len(grams) else ends[:0]
        grams = grams[changes]
        common = np.minimum(second, ends - changes - second) if len(grams) else second
        common[grams & (1 << width) - 1 == 0] = 0  # they end in a gap
        found[:, n - 1] = np.bincount(grams >> n * width, weights=common, minlength=len(pairs))
    return found


def lengths(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return (P,) lengths of P texts in characters."""
    return np.array([len(text) for text in texts])


def counts(sizes: NDArray[np.int64], order: int) -> NDArray[np.int64]:
    """Return (P, N) numbers of n-grams, n = 1 to N, in texts of (P,) sizes."""
    return np.maximum(sizes[:, None] - np.arange(order), 0)


def as_characters(lines: Iterable[str], numbers: dict[str, str]) -> list[str]:
    """Return lines with every word replaced by one character, so that n-grams of words are n-grams of characters.

    Args:
        lines: words between spaces.
        numbers: {word: character}, to which new words are added.
    """
    return ["".join([numbers.setdefault(word, chr(len(numbers) + 1)) for word in line.split()]) for line in lines]
