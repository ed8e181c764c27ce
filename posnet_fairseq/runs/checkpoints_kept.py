"""Checkpoints of a training that are still needed, while it goes on."""

import math
import re
from pathlib import Path

from posnet_fairseq.runs.training_log import records
from posnet_fairseq.shared.selection import best_index

_NUMBERED = re.compile(r"checkpoint_\d+_(\d+)\.pt")
# checkpoint_last.pt, checkpoint_best.pt, and one that is being written; after the training, two thirds of the latter's
# room are taken by averaged.pt and precomputed.pt.
COPIES = 3


def most_kept(average: int, numbered: int) -> int:
    """Return the most checkpoints, copies counted, that a training with so many numbered ones keeps at a time."""
    return min(2 * average + 1, numbered) + COPIES


def remove_old(folder: Path, log: Path, average: int) -> None:
    """Remove numbered checkpoints that posnet-average can no longer choose.

    It takes the best one on the validation set and the average - 1 that follow it, or the last ones where fewer follow:
    all of these are kept, and checkpoints that the log says nothing about: it may have been lost.
    """
    found = {path: _NUMBERED.fullmatch(path.name) for path in folder.glob("checkpoint_*.pt")}
    paths = {int(match[1]): path for path, match in found.items() if match}
    if len(paths) <= average:
        return
    valid: dict[float, float] = {}
    for kind, values in records(log):
        if kind == "valid":
            perplexity = values["valid_ppl"]
            valid[values["valid_num_updates"]] = perplexity if math.isfinite(perplexity) else math.inf
    updates = sorted(paths)
    best = best_index([valid.get(number) for number in updates])
    kept = {*updates[best : best + average], *updates[-average:]}
    for number in updates:
        if number in valid and number not in kept:
            paths[number].unlink()
