"""Timing whose ratios hold when the machine's speed drifts."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch


def interleaved(
    functions: Mapping[str, Callable[[], object]],
    rounds: int,
    warm_up: int = 1,
    clock: Callable[[], float] | None = None,
) -> dict[str, list[float]]:
    """Run every function once a round, in turn, and time it.

    Args:
        functions: functions without arguments, by name.
        rounds: counted rounds.
        warm_up: rounds before them, which are not counted.
        clock: returns seconds. Default: CPU time of this process, which the load of other processes does not change,
            or elapsed time if there is a GPU, which is waited for before the clock is read.

    Returns:
        dict from name to a list of seconds, one value for each counted round.
    """
    if clock is None:
        clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for round_ in range(warm_up + rounds):
        for name, function in functions.items():
            wait()
            start = clock()
            function()
            wait()
            if round_ >= warm_up:
                seconds[name].append(clock() - start)
    return seconds


def wait() -> None:
    """Wait until a GPU, if there is one, has finished."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios ours / theirs, taken round by round."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
