"""Runs sections and keeps what they printed, from which the report is written."""

import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posnet_fairseq.bench.gpu_check.sections import Machine, Section
from posnet_fairseq.shared.files import replacing
from posnet_fairseq.shared.records import installed_versions

LINES = 200  # of a section's output in the report, the last ones
PACKAGES = ("posnet", "ve-fairseq", "fairseq-fixed", "torch", "triton", "ctranslate2")


def passes(section: Section, folder: Path, again: bool) -> bool:
    """Run a section unless it has passed before, and keep its outcome in the folder; say whether it passed."""
    path = folder / f"{section.name}.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if section.left_out:
        outcome: dict[str, Any] = {"state": "left out", "reason": section.left_out}
    elif before.get("state") == "passed" and before.get("commands") == list(section.commands) and not again:
        return True
    else:
        print(f"{section.title} ...", file=sys.stderr, flush=True)
        outcome = _run(section)
        print(f"{section.title}: {outcome['state']}, {outcome['seconds']:.0f} s", file=sys.stderr, flush=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(outcome, indent=1, ensure_ascii=False), encoding="utf-8")
    return outcome["state"] != "failed"


def _run(section: Section) -> dict[str, Any]:
    """What came of the commands of a section."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    script = "set -e\n" + "\n".join(section.commands)
    start, ended = time.monotonic(), ""
    process = subprocess.Popen(
        ["bash", "-c", script],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=section.seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        output, _ = process.communicate()
        ended = f"\nended after {section.seconds} seconds"
    except BaseException:
        _end(process)
        raise
    return {
        "state": "passed" if process.returncode == 0 else "failed",
        "commands": list(section.commands),
        "seconds": round(time.monotonic() - start, 1),
        "exit": process.returncode,
        "output": output + ended,
    }


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def write(folder: Path, sections: Sequence[Section], machine: Machine) -> Path:
    """Write report.md and report.json from the outcomes in a folder; return the path of the first."""
    outcomes = {each.name: json.loads((folder / f"{each.name}.json").read_text(encoding="utf-8")) for each in sections}
    versions = installed_versions(*PACKAGES)
    where = f"{machine.gpus} GPUs" if machine.gpus else "a simulated GPU: no figure here is one of a GPU"
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = ["# posnet on a GPU", "", f"{datetime.date.today()}, {where}; {said}.", ""]
    lines += ["| section | outcome | seconds |", "|---|---|---|"]
    for each in sections:
        outcome = outcomes[each.name]
        lines.append(f"| {each.title} | {outcome['state']} | {outcome.get('seconds', '')} |")
    for each in sections:
        outcome = outcomes[each.name]
        lines += ["", f"## {each.title}", ""]
        if outcome["state"] == "left out":
            lines.append(f"Left out: {outcome['reason']}.")
            continue
        printed = outcome["output"].rstrip().splitlines()
        cut = [f"... {len(printed) - LINES} lines more in {each.name}.json"] if len(printed) > LINES else []
        lines += ["```", *cut, *printed[-LINES:], "```"]
    with replacing(folder / "report.md") as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with replacing(folder / "report.json") as temporary:
        temporary.write_text(json.dumps({"versions": versions, "sections": outcomes}, indent=1), encoding="utf-8")
    return folder / "report.md"
