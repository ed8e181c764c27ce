"""The scores of a finished run, for whoever gets its model."""

import contextlib
from pathlib import Path
from typing import Any

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.records import Record, read_json


def scores_of(checkpoint: Path) -> list[str]:
    """Return scores and signatures as a list in Markdown; none if the file is of no run that was scored since."""
    run, report = checkpoint.parent, checkpoint.parent / "report" / "report.json"
    if checkpoint.name not in ("averaged.pt", "precomputed.pt"):
        return []
    with contextlib.suppress(OSError, UsageError, KeyError, TypeError, ValueError, AttributeError):
        stages = [Record(run / f"{stage}.json") for stage in ("translate", "score")]
        if all(stage.finished for stage in stages) and report.stat().st_mtime_ns >= checkpoint.stat().st_mtime_ns:
            content: Any = read_json(report)
            (test_set,), settings = content["test_sets"], stages[0].content["settings"]
            (scores,) = test_set["scores"].values()
            search = ", ".join(f"{name.removeprefix('--')} {settings[name]}" for name in ("--beam", "--lenpen"))
            return [
                f"Test set of the data, {test_set['size']:,} sentences; {search}.",
                "",
                *(
                    f"- {metric['label']} {scores[metric['name']]['value']:.2f} (`{metric['signature']}`)"
                    for metric in test_set["metrics"]
                ),
            ]
    return []
