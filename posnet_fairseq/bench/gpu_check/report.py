"""The report of a check as Markdown, and its figures as JSON."""

import json
from pathlib import Path
from typing import Any

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import replacing

LINES = 60  # of each command's output, the last ones; the JSON has all
Results = dict[str, dict[str, Any]]


def read_results(folder: Path, simulated: bool) -> Results:
    """Results of sections by name, of an earlier check of the same kind; none if there was none.

    Raises:
        UsageError: the file is damaged.
    """
    path = folder / "results.json"
    if not path.exists():
        return {}
    try:
        stored = json.loads(path.read_text())
        sections: Results = stored["sections"]
        return sections if stored["simulated"] == simulated else {}
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is damaged. Remove it, or run all sections with --again.") from error


def write_report(folder: Path, results: Results, simulated: bool) -> None:
    """Write ``report.md`` and ``results.json``."""
    with replacing(folder / "results.json") as path:
        path.write_text(json.dumps({"simulated": simulated, "sections": results}, indent=1))
    with replacing(folder / "report.md") as path:
        path.write_text("\n".join(_markdown(results, simulated)) + "\n")


def _markdown(results: Results, simulated: bool) -> list[str]:
    lines = ["# posnet on a GPU", ""]
    if simulated:
        lines += ["**Simulated: no figure here is of a GPU.** Sizes are small; what needs a GPU is skipped.", ""]
    lines += ["| section | state | seconds | |", "|---|---|---|---|"]
    for result in results.values():
        reason = result["reason"].replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {result['title']} | {result['state']} | {result['seconds']:.0f} | {reason} |")
    for result in results.values():
        lines += ["", f"## {result['title']}", ""]
        if result["reason"]:
            lines.append(f"{result['state']}: {result['reason']}")
        for run in result["commands"]:
            shown = run["output"].rstrip().splitlines()[-LINES:]
            lines += ["", "````", f"$ {run['command']}", *shown, "````"]
    return lines
