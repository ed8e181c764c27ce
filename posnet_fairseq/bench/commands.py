"""Time and memory of command lines, with all processes that they start."""

import contextlib
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from posnet_fairseq.shared.errors import UsageError


class CommandCost(NamedTuple):
    """What command lines took.

    Attributes:
        seconds: from start to end.
        cpu_seconds: of all processes.
        peak: bytes that all processes held at once, at most.
    """

    seconds: float
    cpu_seconds: float
    peak: int


def measure(commands: Sequence[str]) -> CommandCost:
    """Run shell commands one after the other.

    Raises:
        UsageError: a command fails.
    """
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    start, before, peak = time.perf_counter(), _cpu_seconds(), 0
    for command in commands:
        with (
            subprocess.Popen(
                ["bash", "-c", f"set -o pipefail; {command}"],
                env=environment,
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            ) as process,
            _watching(process.pid) as seen,
        ):
            _, said = process.communicate()
        peak = max(peak, max(seen))
        if process.returncode:
            raise UsageError(f"a command of the benchmark failed: {command}: {said.strip().splitlines()[-1:]}")
    return CommandCost(time.perf_counter() - start, _cpu_seconds() - before, peak)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def _watching(session: int) -> Iterator[list[int]]:
    """Yield a list to which the memory of a session's processes is added a few times a second."""
    seen, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            seen.append(_memory(session))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def _memory(session: int) -> int:
    """Bytes that the processes of a session hold; shared memory is counted once."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            # behind the name, which is in brackets: state, parent, group, session
            if int((folder / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total
