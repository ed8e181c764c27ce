"""Logs of fairseq-train with ``--log-format json``, and the checkpoints that are still needed by what they say."""

import itertools
import json
import math
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.selection import best_index

_RECORD = re.compile(r"\| INFO \| (train_inner|valid) \| (\{.*\})\s*$")
_NUMBERED = re.compile(r"checkpoint_\d+_(\d+)\.pt")
# checkpoint_last.pt, checkpoint_best.pt, and one that is being written; after the training, two thirds of the latter's
# room are taken by averaged.pt and precomputed.pt.
COPIES = 3


def records(path: Path | str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the kind, ``train_inner`` or ``valid``, and the values of every record in a log, numbers as floats.

    A line that is not written to its end yet, or is damaged, is left out.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        match = _RECORD.search(line)
        if match:
            try:
                values = json.loads(match.group(2))
            except ValueError:
                continue
            yield match.group(1), {name: _number(value) for name, value in values.items()}


def training_speed(path: Path | str) -> float | None:
    """Return the median of target tokens a second in a log, of all processes together; None if it has none."""
    rates = [values["wps"] for kind, values in records(path) if kind == "train_inner"]
    return statistics.median(rates) if rates else None


def cpu_seconds_per_update(path: Path | str) -> float | None:
    """Return CPU seconds of an update in a log, validations and checkpoints included; None if it does not have them.

    The start of the program does not count, nor does work that was lost with an interruption.
    """
    found = [
        (values["num_updates"], values["cpu"])
        for kind, values in records(path)
        if kind == "train_inner" and "cpu" in values
    ]
    steps = [(late[0] - early[0], late[1] - early[1]) for early, late in itertools.pairwise(found)]
    # A training that goes on counts CPU seconds from 0 again.
    steps = [step for step in steps if min(step) > 0]
    return sum(seconds for _, seconds in steps) / sum(updates for updates, _ in steps) if steps else None


def best_validation(path: Path | str) -> tuple[float, int]:
    """Return the least perplexity of the validation set in a log, and the number of updates until then."""
    valid = (values for kind, values in records(path) if kind == "valid")
    found = [(values["valid_ppl"], int(values["valid_num_updates"])) for values in valid]
    if not found:
        raise UsageError(f"{path} lacks validation perplexities: it may have been cut. Remove its run and run again.")
    return min(found)


def _number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def most_kept(average: int, numbered: int) -> int:
    """Return the largest number of checkpoints, copies included, that a training keeps at a time."""
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
