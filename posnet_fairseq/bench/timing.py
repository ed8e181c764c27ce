"""Time and memory of calls, in ratios that hold when the machine's speed drifts."""

import ctypes
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from posnet_fairseq.shared.processes import resident

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler reports every start and stop otherwise


def device_clock() -> float:
    """Return seconds of CPU time of this process, which the load of other processes does not change.

    On a machine with a GPU, seconds on the clock, when the GPU has finished all that it was given.
    """
    if not torch.cuda.is_available():
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def default_device() -> torch.device:
    """Return the device that is measured: the first GPU, if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def interleaved(
    functions: Mapping[str, Callable[[], object]],
    rounds: int,
    warm_up: int = 1,
    clock: Callable[[], float] = device_clock,
) -> dict[str, list[float]]:
    """Return seconds of each function by round, of which the first, to warm up, do not count.

    Every function runs once a round, in reverse order in every second one: it may leave caches and memory to the next
    one in a state that makes it faster or slower.
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
    """Return the median of the ratios ours / theirs, taken round by round."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


class Time(NamedTuple):
    """The median of seconds of a call, and of their ratio to a baseline's in the same round."""

    seconds: float
    ratio: float


def compared(functions: Mapping[str, Callable[[], object]], baseline: str, rounds: int) -> dict[str, Time]:
    """Time functions in turn, of which one is the baseline."""
    found = interleaved(functions, rounds)
    return {name: Time(statistics.median(own), median_ratio(own, found[baseline])) for name, own in found.items()}


def peak_resident(function: Callable[[], object]) -> int:
    """Return the bytes that this process holds at most while `function` runs, beyond what it held before.

    Unlike :func:`peak_bytes` it includes what libraries other than torch allocate. On a GPU both return the same.
    """
    if torch.cuda.is_available():
        return peak_bytes(function)
    ctypes.CDLL(None).malloc_trim(0)  # memory that was freed before must not be reused unseen
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak up to now
    before = resident("VmRSS")
    function()
    return max(0, resident("VmHWM") - before)


def peak_bytes(function: Callable[[], object]) -> int:
    """Return the bytes that torch allocates at most while `function` runs, beyond what was allocated before.

    On a GPU the allocator counts them; on a CPU torch's profiler follows every allocation.
    """
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        function()
    events = [event for event in run.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak
