"""The checkpoints that a training run saved: what they are, and which of them are missing."""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from posnet_fairseq.inference.checkpoints import read_checkpoint
from posnet_fairseq.inference.vocabularies import data_folder
from posnet_fairseq.shared.errors import UsageError

# checkpoint3.pt (an epoch) and checkpoint_3_1500.pt (updates), but not their copies such as checkpoint_best.pt.
_NUMBERED = re.compile(r"checkpoint(\d+|_\d+_\d+)\.pt")


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint of a run, without its tensors."""

    path: Path
    updates: int  # done when it was written
    valid: float | None  # --best-checkpoint-metric on the validation set; None if not validated or not finite
    metric: str = "loss"  # name of that metric
    maximize: bool = False  # whether larger values are better
    interval: int = 0  # --save-interval-updates, 0 or less if there was none
    epochs: int = 1  # --save-interval
    numbered: bool = True  # whether it was not only written as a copy such as checkpoint_best.pt
    seed: object = None  # --seed, None if the checkpoint does not tell
    data: Path | None = None  # directory that the run was trained on, None if the checkpoint does not tell

    @property
    def epoch(self) -> int | None:
        """Return the epoch in the name of the file, None if it has none."""
        match = re.fullmatch(r"checkpoint(\d+)\.pt", self.path.name)
        return int(match[1]) if match else None


def is_name_of_training(name: str) -> bool:
    """Return whether fairseq-train gives this name to a checkpoint."""
    return bool(_NUMBERED.fullmatch(name)) or name in ("checkpoint_last.pt", "checkpoint_best.pt")


def numbered_checkpoints(folder: str | Path) -> list[SavedCheckpoint]:
    """Return the numbered checkpoints of a folder in the order of training; refuse those of several runs."""
    found: dict[int, SavedCheckpoint] = {}
    for path in sorted(Path(folder).glob("checkpoint*.pt")):
        if not _NUMBERED.fullmatch(path.name):
            continue
        checkpoint = _saved(path)
        # The end of an epoch may be written twice, under its epoch and under its updates.
        other = found.setdefault(checkpoint.updates, checkpoint)
        if other is not checkpoint and not _same_step(other.path, path):
            raise UsageError(
                f"{other.path} and {path} both have {other.updates} updates and different weights, so they are of "
                "different runs. Move those of one run to another folder."
            )
    if not found:
        raise UsageError(f"{folder} holds no numbered checkpoints (checkpoint*.pt). Check the path of --save-dir.")
    run = [found[updates] for updates in sorted(found)]
    for checkpoint in run:
        if checkpoint.metric != run[-1].metric:
            raise UsageError(
                f"{checkpoint.path} was validated by {checkpoint.metric} and {run[-1].path} by {run[-1].metric} "
                "(--best-checkpoint-metric), so no best one can be found. Move those of one metric to another folder."
            )
    return run


def _saved(path: Path) -> SavedCheckpoint:
    state = read_checkpoint(path)
    extra, settings = state.get("extra_state", {}), state["cfg"].get("checkpoint", {})
    common = state["cfg"].get("common")
    try:
        valid, updates = extra.get("val_loss"), state["optimizer_history"][-1]["num_updates"]
        interval, epochs = int(settings.get("save_interval_updates", 0)), int(settings.get("save_interval", 1))
        valid = float(valid) if valid is not None and math.isfinite(valid) else None
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path} does not say its intervals and its validation as a checkpoint of fairseq-train does. Take it out "
            "of the folder."
        ) from error
    return SavedCheckpoint(
        path,
        updates,
        valid,
        settings.get("best_checkpoint_metric", "loss"),
        settings.get("maximize_best_checkpoint_metric", False),
        interval,
        epochs,
        (interval > 0 and updates % interval == 0) or _has_file_of_epoch(extra.get("train_iterator"), settings),
        common.get("seed") if isinstance(common, dict) else None,
        data_folder(state),
    )


def _has_file_of_epoch(position: object, settings: dict[str, Any]) -> bool:
    """Return whether a checkpoint was also written under its epoch: it ends one, and training goes on in the next."""
    match position:
        case {"epoch": int(following), "iterations_in_epoch": 0} if not settings.get("no_epoch_checkpoints"):
            return (following - 1) % max(settings.get("save_interval", 1), 1) == 0
    return False


def _same_step(path: Path, other_path: Path) -> bool:
    """Return whether two checkpoints of one update number have equal weights: updates change all biases and gains."""
    model, other = (read_checkpoint(each)["model"] for each in (path, other_path))
    small = {name: tensor for name, tensor in model.items() if tensor.dim() == 1}
    return all(name in other and torch.equal(small[name].nan_to_num(), other[name].nan_to_num()) for name in small)


def copy_in(folder: str | Path, name: str) -> SavedCheckpoint | None:
    """Return the checkpoint that ``checkpoint_{best,last}.pt`` is a copy of; None if it cannot be read."""
    try:
        return _saved(Path(folder, f"checkpoint_{name}.pt"))
    except UsageError:
        return None


def lost_best(run: Sequence[SavedCheckpoint], best: SavedCheckpoint | None) -> str | None:
    """Return a sentence if the best checkpoint of a run, copied to `best`, was numbered and is gone, else None."""
    if best is None or best.valid is None or not best.numbered or best.updates > run[-1].updates:
        return None
    sign = -1 if best.maximize else 1
    as_good = (checkpoint.valid is not None and sign * checkpoint.valid <= sign * best.valid for checkpoint in run)
    if any(as_good) or best.updates in {checkpoint.updates for checkpoint in run}:
        return None
    return (
        f"the best checkpoint of the run ({best.metric} {best.valid:.4f} after {best.updates} updates) was not kept, "
        "so the best of the others counts; train with a larger --keep-interval-updates to keep it."
    )


def gap(chosen: Sequence[SavedCheckpoint], last: SavedCheckpoint | None = None) -> str | None:
    """Return a sentence if the run wrote checkpoints between the chosen ones that are gone, else None.

    `last` is the checkpoint that ``checkpoint_last.pt`` is a copy of, if no numbered one follows the chosen ones.
    """
    due: dict[str, list[range]] = {"after updates": [], "of epochs": []}
    for before, after in itertools.pairwise(chosen):
        if after.interval > 0:
            due["after updates"].append(_due(before.updates, after.updates, after.interval))
        elif before.epoch is not None and after.epoch is not None:
            due["of epochs"].append(_due(before.epoch, after.epoch, after.epochs))
    if last is not None and last.interval > 0:
        due["after updates"].append(_due(chosen[-1].updates, last.updates + 1, last.interval))
    missing = [f"{what} {_some(ranges)}" for what, ranges in due.items() if any(ranges)]
    if not missing:
        return None
    return (
        f"the checkpoints {' and '.join(missing)} are not there, so those that are averaged do not follow one another; "
        "train with a larger --keep-interval-updates to keep them."
    )


def _due(begin: int, end: int, step: int) -> range:
    """Return the multiples of `step` after `begin` and before `end`."""
    return range(begin // step * step + step, end, step) if step > 0 else range(0)


def _some(ranges: Sequence[range], number: int = 5) -> str:
    """Return the first few numbers of ranges, and the number of the others."""
    first = list(itertools.islice(itertools.chain(*ranges), number))
    more = sum(map(len, ranges)) - len(first)
    return ", ".join(map(str, first)) + (f" and {more} more" if more else "")
