"""Counts of the n-grams that two texts have in common, for many pairs of texts at once."""

import itertools
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from posnet_eval.metrics.base import FloatArray

_BITS = 62  # of an integer that holds the number of a pair, an n-gram and a side
_GAP = "\0"


def matches(pairs: Sequence[tuple[str, str]], order: int) -> FloatArray | None:
    """Return (P, N) clipped counts of the n-grams of 1 to N characters that both texts of each of P pairs have.

    The longest n-grams are written as integers (number of the pair, characters) and sorted once. N-grams that begin
    with the same n characters are then neighbors, for every n, and groups of them are joined to larger groups from the
    longest n to the shortest. None: the texts have too many different characters for 64-bit integers.
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
    grams, starts = keys >> 1, np.arange(len(keys))
    for n in range(order, 0, -1):
        changes = np.flatnonzero(np.append(True, grams[1:] != grams[:-1])[: len(grams)])
        grams, starts = grams[changes], starts[changes]
        ends = np.append(starts[1:], len(keys))
        second = seconds[ends] - seconds[starts] if len(grams) else starts
        common = np.minimum(second, ends - starts - second) if len(grams) else starts
        common[grams & (1 << width) - 1 == 0] = 0  # they end in a gap
        found[:, n - 1] = np.bincount(grams >> n * width, weights=common, minlength=len(pairs))
        grams = grams >> width  # different n-grams may begin with the same n - 1 characters
    return found


def lengths(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return (P,) lengths of P texts in characters."""
    return np.array([len(text) for text in texts])


def counts(sizes: NDArray[np.int64], order: int) -> NDArray[np.int64]:
    """Return (P, N) numbers of n-grams, n = 1 to N, in texts of (P,) sizes."""
    return np.maximum(sizes[:, None] - np.arange(order), 0)


def as_characters(*texts: Sequence[str]) -> list[list[str]]:
    """Return lines with every word replaced by one character, so that n-grams of words are n-grams of characters."""
    characters: defaultdict[str, str] = defaultdict(map(chr, itertools.count(1)).__next__)
    return [["".join(map(characters.__getitem__, line.split())) for line in lines] for lines in texts]
