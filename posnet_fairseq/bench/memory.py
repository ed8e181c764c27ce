"""Memory that one call takes."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler reports every start and stop otherwise


def peak_resident(function: Callable[[], object]) -> int:
    """Bytes that this process holds at most while `function` runs, beyond what it held before.

    Unlike :func:`peak_bytes` it includes what libraries other than torch allocate. On a GPU both return the same.
    """
    if torch.cuda.is_available():
        return peak_bytes(function)
    ctypes.CDLL(None).malloc_trim(0)  # memory that was freed before must not be reused unseen
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak up to now
    before = _status("VmRSS")
    function()
    return max(0, _status("VmHWM") - before)


def _status(name: str) -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024


def peak_bytes(function: Callable[[], object]) -> int:
    """Bytes that torch allocates at most while `function` runs, beyond what was allocated before.

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
