"""Which checkpoints of a training are averaged."""

from collections.abc import Sequence


def index_of_best(valid: Sequence[float | None], maximize: bool) -> int | None:
    """Return the index of the best of some values, the first of several; None if there are none."""
    sign = -1 if maximize else 1
    scored = [(sign * value, index) for index, value in enumerate(valid) if value is not None]
    return min(scored)[1] if scored else None


def best_and_following(valid: Sequence[float | None], number: int, maximize: bool) -> range:
    """Return indices of the best checkpoint and the number - 1 that follow it, or of the last ones where fewer follow.

    The PosNet paper (Schmidt and Di Gangi, WMT 2023, Section 5.3) chooses so. `valid` has the value of each checkpoint
    on the validation set, in the order of training, None if it has none: without validation the last are chosen.
    """
    first, last = index_of_best(valid, maximize), len(valid) - number
    start = last if first is None else min(first, last)
    return range(start, start + number)
