"""Which lines seem to translate the same: a measure that is cheap and needs no model, to find files out of step."""

import numpy as np

ORDER = 3  # characters of the n-grams compared
LONGEST = 1000  # characters of a line that are looked at
SAMPLE = 200  # lines that tell of a whole file


def similarities(some, others):
    """Shared character trigrams of lines, side by side.

    Args:
        some, others: equally many lines.

    Returns:
        (N,) numbers between 0 and 1 (Dice coefficient of the sets of trigrams).
    """
    return np.array([_dice(_trigrams(a), _trigrams(b)) for a, b in zip(some, others, strict=True)])


def first_out_of_step(lines, references):
    """Where lines go missing from a file, or too many begin.

    It takes the place for which the lines before agree best with the reference's as they stand, and those behind
    agree best when they are moved by the difference of the counts.

    Args:
        lines: of the file with another number of lines.
        references: what they should translate to.

    Returns:
        number of the line, from 1.
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
    # of several best places, the last: what lacks or follows the end is the likeliest fault
    return size - int(np.argmax(agreement[::-1])) + 1


def of_another_text(lines, references):
    """Whether lines are no more like their own references than like those of the next lines."""
    if len(lines) < 10:
        return False
    some = range(0, len(lines), -(-len(lines) // SAMPLE))
    own = similarities([lines[place] for place in some], [references[place] for place in some]).mean()
    other = similarities([lines[place] for place in some], [references[place - 1] for place in some]).mean()
    return bool(own < 1.2 * other + 0.01)


def _trigrams(line):
    line = line[:LONGEST].lower()
    return {line[start : start + ORDER] for start in range(max(len(line) - ORDER + 1, 1))}


def _dice(some, others):
    return 2 * len(some & others) / (len(some) + len(others))
