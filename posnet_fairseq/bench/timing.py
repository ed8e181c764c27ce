"""Timing that holds when the machine's speed drifts."""

import statistics
import time


def interleaved(functions, rounds, warm_up=1, clock=time.process_time):
    """Run every function once a round, in turn, and time it.

    Args:
        functions: dict from name to a function without arguments.
        rounds: counted rounds.
        warm_up: rounds before them.
        clock: seconds. Default: CPU time of this process, which other processes' load does not count in.

    Returns:
        dict from name to the list of seconds, a value a round.
    """
    seconds = {name: [] for name in functions}
    for round_ in range(warm_up + rounds):
        for name, function in functions.items():
            start = clock()
            function()
            if round_ >= warm_up:
                seconds[name].append(clock() - start)
    return seconds


def median_ratio(ours, theirs):
    """Median of the ratios ours / theirs, round by round."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
