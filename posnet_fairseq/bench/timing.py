"""Timing whose ratios hold when the machine's speed drifts."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch


def device_clock() -> float:
    """Seconds of CPU time of this process, which the load of other processes does not change.

    On a machine with a GPU, seconds on the clock, when the GPU has finished all that it was given.
    """
    if not torch.cuda.is_available():
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def default_device() -> torch.device:
    """The device that is measured: the first GPU, if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def interleaved(
    functions: Mapping[str, Callable[[], object]],
    rounds: int,
    warm_up: int = 1,
    clock: Callable[[], float] = device_clock,
) -> dict[str, list[float]]:
    """Run every function once a round and time it, forwards in one round and backwards in the next.

    A function may leave caches and memory to the next one in a state that makes it faster or slower.

    Args:
        rounds: counted rounds.
        warm_up: rounds before them, which are not counted.
        clock: returns seconds.

    Returns:
        dict from name to a list of seconds, one value for each counted round.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for round_ in range(warm_up + rounds):
        for name in functions if round_ % 2 == 0 else reversed(list(functions)):
            start = clock()
            functions[name]()
            if round_ >= warm_up:
                seconds[name].append(clock() - start)
    return seconds


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios ours / theirs, taken round by round."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
