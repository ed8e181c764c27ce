"""Signals of processes that tests start, and whether these are still there."""

import contextlib
import os
import signal
import time
from pathlib import Path

# Seconds after which a test takes a process for one that hangs. A busy machine takes minutes for what takes seconds.
# What is to be killed must last longer by far.
PATIENCE = 600


def default_signals():
    """Let interrupts and ends reach a new process, as its ``preexec_fn``: jobs in the background may ignore them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def processes_of(folder):
    """The numbers of processes that were told of a folder in their command line or environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            if os.fsencode(folder) in (path / "cmdline").read_bytes() + (path / "environ").read_bytes():
                found.append(path.name)
    return found


def is_alive(process):
    """Whether a process, given by its number, has not ended. The command line of one that has is empty or gone."""
    with contextlib.suppress(OSError):
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    return False


def wait_until(condition, what):
    """Fail with `what` if the condition does not hold in time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
