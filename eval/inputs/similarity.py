"""A cheap similarity of lines that needs no model, to find texts that are not aligned."""

import functools
from collections.abc import Sequence

import numpy as np

from posnet_eval.metrics.base import FloatArray

ORDER = 3  # characters of the n-grams compared
LONGEST = 1000  # characters of a line that are compared
SAMPLE = 200  # lines that represent a whole file


def similarities(some: Sequence[str], others: Sequence[str]) -> FloatArray:
    """Return (N,) Dice coefficients of the sets of character trigrams of N pairs of lines, between 0 and 1."""
    return np.array([_dice(_trigrams(a), _trigrams(b)) for a, b in zip(some, others, strict=True)])


def first_misaligned_line(lines: Sequence[str], references: Sequence[str]) -> int:
    """Return the number (from 1) of the line at which lines seem to be missing or superfluous.

    The lines in front of it agree best with the reference lines of equal number, those behind it with the reference
    lines shifted by the difference of the counts.
    """
    if not lines:
        return 1
    size = min(len(lines), len(references))
    excess = len(lines) - len(references)
    in_step = similarities(lines[:size], references[:size])
    moved = similarities(lines[max(excess, 0) :], references[max(-excess, 0) :])
    before = np.concatenate([[0], np.cumsum(in_step)])
    behind = np.concatenate([np.cumsum(moved[::-1])[::-1], [0]])
    agreement = before + behind
    # the last of several best positions: lines missing or added at the end are the likeliest fault
    return size - int(np.argmax(agreement[::-1])) + 1


def looks_misaligned(lines: Sequence[str], references: Sequence[str]) -> bool:
    """Return whether lines are no more similar to their own references than to those of other lines."""
    if len(lines) < 10:
        return False
    some = range(0, len(lines), -(-len(lines) // SAMPLE))
    own = similarities([lines[place] for place in some], [references[place] for place in some]).mean()
    other = similarities([lines[place] for place in some], [references[place - 1] for place in some]).mean()
    return bool(own < 1.2 * other + 0.01)


@functools.lru_cache(maxsize=4 * SAMPLE)  # systems share the reference
def _trigrams(line: str) -> frozenset[str]:
    line = line[:LONGEST].lower()
    return frozenset(line[start : start + ORDER] for start in range(max(len(line) - ORDER + 1, 1)))


def _dice(some: frozenset[str], others: frozenset[str]) -> float:
    return 2 * len(some & others) / (len(some) + len(others))
