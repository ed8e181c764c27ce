"""Running of a section: its commands, each in a process of its own, within a limit of time."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from posnet_fairseq.bench.gpu_check.sections import Section

ROOT = Path(__file__).parents[3]


def run_section(section: Section) -> dict[str, Any]:
    """Run the commands of a section until one fails.

    Returns:
        ``title``, ``state`` (passed, failed or skipped), ``reason`` (of the latter two), ``seconds``, ``commands``: a
        dict with ``command``, ``code`` and ``output`` for each that was run.
    """
    result: dict[str, Any] = {"title": section.title, "state": "passed", "reason": "", "seconds": 0.0, "commands": []}
    if section.skipped:
        return result | {"state": "skipped", "reason": section.skipped}
    start = time.monotonic()
    for command in section.commands:
        left = section.limit - (time.monotonic() - start)
        code, output = _run(command, section.environment, left)
        result["commands"].append({"command": command, "code": code, "output": output})
        if code != 0:
            ended = f"was stopped: the section has {section.limit} s" if code is None else f"ended with code {code}"
            result |= {"state": "failed", "reason": f"`{command}` {ended}"}
            break
    return result | {"seconds": time.monotonic() - start}


def _run(command: str, environment: dict[str, str], seconds: float) -> tuple[int | None, str]:
    """Exit code (None: it was stopped when the time was over) and output of a shell command at the repository root."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with subprocess.Popen(
        ["bash", "-c", command],
        cwd=ROOT,
        env=os.environ | environment | {"PATH": path, "COLUMNS": "110"},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            output, _ = process.communicate(timeout=max(1.0, seconds))
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            output, _ = process.communicate()
            return None, output
    return process.returncode, output
