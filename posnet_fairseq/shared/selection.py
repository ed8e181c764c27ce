"""Which checkpoints of a training are averaged."""

from collections.abc import Sequence


def best_index(valid: Sequence[float | None], maximize: bool = False) -> int:
    """Return the index of the best value, the first of several; the number of values if all are None.

    Args:
        valid: of each checkpoint, its value on the validation set, None if it has none.
        maximize: whether larger values are better.
    """
    sign = -1 if maximize else 1
    scored = [(sign * value, index) for index, value in enumerate(valid) if value is not None]
    return min(scored)[1] if scored else len(valid)


def best_and_following(valid: Sequence[float | None], number: int, maximize: bool = False) -> range:
    """Return indices of the best checkpoint and the number - 1 that follow it, or of the last ones where fewer follow.

    The PosNet paper (Schmidt and Di Gangi, WMT 2023, Section 5.3) chooses so. Without validation these are the last
    ones.

    Args:
        valid: of each checkpoint in the order of training, its value on the validation set, None if it has none.
        number: of checkpoints to choose, at most all.
        maximize: whether larger values are better.
    """
    start = min(best_index(valid, maximize), len(valid) - number)
    return range(start, start + number)
