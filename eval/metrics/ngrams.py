"""N-grams that two texts have in common, of many pairs of texts at once."""

import numpy as np

_BITS = 62  # of an integer that holds the number of a pair, an n-gram and a side
_GAP = "\0"


def matches(pairs, order):
    """Count what both sides of pairs have in common, an n-gram as often as on the side that has it less often.

    The longest n-grams are written as integers, of the pair and of their characters, and sorted, once: those that begin
    with the same n characters then stand together, for every n.

    Args:
        pairs: P of two strings.
        order: N.

    Returns:
        (P, N) counts of n-grams of n = 1 to N characters; None if there are too many different characters.
    """
    # Gaps as long as an n-gram part the texts: none reaches into the next one.
    text = "".join(side + _GAP * order for pair in pairs for side in pair)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    numbers = np.cumsum(np.bincount(codes) > 0) - 1  # of the characters that there are; 0 is the gap
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


def lengths(texts):
    """(P,) characters of P strings."""
    return np.array([len(text) for text in texts])


def counts(sizes, order):
    """(P, N) numbers of n-grams, n = 1 to N, that texts of (P,) sizes have."""
    return np.maximum(sizes[:, None] - np.arange(order), 0)


def as_characters(lines, numbers):
    """Lines in which every word has become a character, so that n-grams of words are n-grams of characters.

    Args:
        lines: of words between spaces.
        numbers: {word: character}, filled on the way.
    """
    return ["".join([numbers.setdefault(word, chr(len(numbers) + 1)) for word in line.split()]) for line in lines]
