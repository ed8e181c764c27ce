"""Signals of processes that tests start, and whether these are still there."""

import contextlib
import os
import signal
import time
from pathlib import Path


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


def wait_until(condition, what, seconds=300):
    """Fail with `what` if the condition does not hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
