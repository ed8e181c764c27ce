"""One checkpoint from several of a training run: those that it saved, which to take, and the mean of their weights."""

import contextlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from posnet_fairseq.inference import checkpoints
from posnet_fairseq.inference.checkpoints import State, Weights
from posnet_fairseq.inference.search.search_settings import ENTRY, SearchSettings
from posnet_fairseq.inference.stored_energies import has_tables
from posnet_fairseq.inference.vocabularies import data_folder, languages_of
from posnet_fairseq.inference.weights import refuse_not_finite
from posnet_fairseq.shared.errors import UsageError, counted
from posnet_fairseq.shared.selection import best_and_following, index_of_best

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
    numbered: bool = True  # whether it was not only written as a copy such as checkpoint_best.pt
    seed: object = None  # --seed, None if the checkpoint does not tell
    data: Path | None = None  # directory that the run was trained on, None if the checkpoint does not tell


def write_average(
    folder: Path,
    number: int,
    out: str | Path,
    search: Mapping[str, Any],
    before_each: Callable[[], None] = lambda: None,
) -> tuple[list[str], list[str]]:
    """Write the mean of checkpoints of a run's folder, with search settings to record; return remarks, and its lines.

    ``before_each`` is called before each checkpoint; what it raises ends the work.
    """
    SearchSettings(**search)  # refuses what no search takes
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such directory. Give the --save-dir of a run.")
    place = Path(out)
    if is_name_of_training(place.name) and place.parent.is_dir() and place.parent.samefile(folder):
        raise UsageError(f"--out {out} is the name of a checkpoint of the training itself. Give another name.")
    run = numbered_checkpoints(folder)
    checkpoints.check_output(out, "--out", [checkpoint.path for checkpoint in run])
    chosen = choose(run, number)
    notes = [note for note in (lost_best(run, best_of(folder)), *doubts(chosen)) if note]
    if len(chosen) < len(run):
        notes += before_best(chosen)
    state = average([checkpoint.path for checkpoint in chosen], before_each)
    moving = state["extra_state"].get("moving", 0)
    if 0 < moving < len(chosen):
        notes.append(
            f"only {moving} of them have moving averages (--store-ema), so the weights as they were trained are "
            "averaged."
        )
    if search:
        state["extra_state"][ENTRY] = dict(search)
    checkpoints.write_checkpoint(state, place)
    lines = []
    for checkpoint in chosen:
        valid = "" if checkpoint.valid is None else f", validation {checkpoint.metric} {checkpoint.valid:.4f}"
        lines.append(f"{checkpoint.path} ({counted(checkpoint.updates, 'update')}{valid})")
    of = "moving averages of the weights (--store-ema) " if moving == len(chosen) else ""
    return notes, [*lines, f"{of}averaged into {out}"]


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
                f"{other.path} and {path} both have {counted(other.updates, 'update')} and different weights, so they "
                "are of different runs. Move those of one run to another folder."
            )
    if not found:
        raise UsageError(f"{folder} holds no numbered checkpoints, as checkpoint3.pt. Check the path of --save-dir.")
    run = [found[updates] for updates in sorted(found)]
    for checkpoint in run:
        if checkpoint.metric != run[-1].metric:
            raise UsageError(
                f"{checkpoint.path} was validated by {checkpoint.metric} and {run[-1].path} by {run[-1].metric} "
                "(--best-checkpoint-metric), so no best one can be found. Move those of one metric to another folder."
            )
    return run


def _saved(path: Path) -> SavedCheckpoint:
    state = checkpoints.read_checkpoint(path, with_weights=False)
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
    numbered = interval > 0 and updates % interval == 0
    match extra.get("train_iterator"):  # is an epoch over, and has training gone on in the next?
        case {"epoch": int(following), "iterations_in_epoch": 0} if not settings.get("no_epoch_checkpoints"):
            numbered = numbered or (following - 1) % max(epochs, 1) == 0
    return SavedCheckpoint(
        path,
        updates,
        valid,
        settings.get("best_checkpoint_metric", "loss"),
        settings.get("maximize_best_checkpoint_metric", False),
        numbered,
        common.get("seed") if isinstance(common, dict) else None,
        data_folder(state),
    )


def _same_step(path: Path, other_path: Path) -> bool:
    """Return whether two checkpoints of one update number have equal weights: updates change all biases and gains."""
    model, other = (checkpoints.read_checkpoint(each)["model"] for each in (path, other_path))
    small = {name: tensor for name, tensor in model.items() if tensor.dim() == 1}
    return all(name in other and torch.equal(small[name].nan_to_num(), other[name].nan_to_num()) for name in small)


def best_of(folder: Path) -> SavedCheckpoint | None:
    """Return the checkpoint that ``checkpoint_best.pt`` is a copy of; None if it cannot be read."""
    try:
        return _saved(folder / "checkpoint_best.pt")
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
        f"the best checkpoint of the run ({best.metric} {best.valid:.4f} after {counted(best.updates, 'update')}) was "
        "not kept, so the best of the others counts; train with a larger --keep-interval-updates to keep it."
    )


def before_best(chosen: Sequence[SavedCheckpoint]) -> list[str]:
    """Return a sentence if checkpoints before the best one are averaged, too, which is not the last of the run."""
    place = index_of_best([each.valid for each in chosen], any(each.maximize for each in chosen))
    after = len(chosen) - 1 - (place or 0)
    if not place or not after:
        return []
    followed = f"{chosen[place].path}, is followed by {counted(after, 'checkpoint')}"
    return [f"the best checkpoint, {followed}: the last {len(chosen)} are averaged."]


def choose(run: Sequence[SavedCheckpoint], number: int) -> list[SavedCheckpoint]:
    """Return the checkpoints of a run, in the order of training, to average, see :func:`best_and_following`."""
    if not 1 <= number <= len(run):
        raise UsageError(
            f"--num {number}: there are {counted(len(run), 'checkpoint')}. Give 1 to {len(run)}, or train with a "
            "smaller --save-interval-updates and a larger --keep-interval-updates to keep more."
        )
    valid = [checkpoint.valid for checkpoint in run]
    return [run[index] for index in best_and_following(valid, number, any(checkpoint.maximize for checkpoint in run))]


@torch.no_grad()
def average(paths: Sequence[Path], before_each: Callable[[], None] = lambda: None) -> State:
    """Return the content of a checkpoint for inference whose weights are the mean of several checkpoints of one run.

    Where all of them have moving averages of the weights (--store-ema), it is the mean of these. Its ``extra_state``
    has the number of checkpoints with moving averages as "moving", if there are any.
    """
    moving = 0
    for path in paths:
        state = checkpoints.read_checkpoint(path, with_weights=False)
        moving += bool(_moving_averages(path, state))
    if has_tables(state["model"]):
        raise UsageError(
            f"{paths[-1]} is precomputed: the mean of its tables is not the table of mean weights. Average the "
            "checkpoints of the training, then precompute the result."
        )
    # Names of one shared tensor, as of embeddings, stay names of one tensor.
    names: dict[Any, list[str]] = {}
    for name, tensor in state["model"].items():
        names.setdefault((tensor.data_ptr(), tensor.shape), []).append(name)
    sums: dict[str, torch.Tensor] = {}
    for path in paths:
        before_each()
        other = checkpoints.read_checkpoint(path, with_weights=False)
        if difference := _difference(paths[-1], state, path, other):
            raise UsageError(f"{difference}. Average checkpoints of one run.")
        weights = _moving_averages(path, other) if moving == len(paths) else other["model"]
        checkpoints.refuse_damaged(path, weights)
        refuse_not_finite(weights, path)
        for name, *_ in names.values():
            tensor = weights[name].double()
            sums[name] = sums[name] + tensor if name in sums else tensor
    model: dict[str, torch.Tensor] = {}
    for first, *others in names.values():
        dtype = state["model"][first].dtype
        if dtype in (torch.float16, torch.bfloat16):
            dtype = torch.float32  # their mean needs more precision than they have
        model |= dict.fromkeys((first, *others), (sums[first] / len(paths)).to(dtype))
    refuse_not_finite(model, f"the mean of {', '.join(map(str, paths))}")
    extra = {"moving": moving} if moving else {}
    return checkpoints.for_inference(state, model, averaged=[str(path) for path in paths], **extra)


def _moving_averages(path: Path, state: State) -> Weights:
    """Return the moving averages of weights that fairseq keeps with --store-ema, none if there are none."""
    found = (state.get("extra_state") or {}).get("ema") or {}
    if found and not (isinstance(found, dict) and _shapes(found) == _shapes(state["model"])):
        raise UsageError(f"{path}: its moving averages (--store-ema) are not of the model's weights. Take another one.")
    if fault := checkpoints.fault_of_weights(found):
        raise UsageError(f"{path}: among its moving averages (--store-ema), {fault}. Take another one.")
    return found


def _shapes(weights: Weights) -> dict[str, tuple[int, ...]]:
    return {name: tuple(getattr(tensor, "shape", ())) for name, tensor in weights.items()}


def _difference(path: Path, state: State, other_path: Path, other: State) -> str | None:
    """Return what shows that two checkpoints are of different models, tasks or data, as far as checkpoints tell."""
    if checkpoints.model_arch(other) != checkpoints.model_arch(state):
        return f"{path} is a {checkpoints.model_arch(state)} and {other_path} a {checkpoints.model_arch(other)}"
    sides: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "option": (vars(checkpoints.model_options(state)), vars(checkpoints.model_options(other))),
        "size of": (_shapes(state["model"]), _shapes(other["model"])),
    }
    for what, (ours, theirs) in sides.items():
        if ours != theirs:
            name = min(name for name, _ in ours.items() ^ theirs.items())
            return f"{path} and {other_path} differ in the {what} {name}"
    mine, others = _trained_on(state), _trained_on(other)
    sizes = [_sizes(data_folder(each)) for each in (state, other)]
    if all(sizes) and sizes[0] != sizes[1]:
        mine["data"], others["data"] = data_folder(state), data_folder(other)
    for name, value in mine.items():
        if value != others[name] and None not in (value, others[name]):
            return f"{path} was trained with the {name} {value} and {other_path} with {others[name]}"
    return None


def _trained_on(state: State) -> dict[str, object]:
    """Return facts that all checkpoints of a run share, by name; None where a checkpoint does not tell."""
    source, target = languages_of(state) or (None, None)
    return {"task": state["cfg"]["task"].get("_name"), "source language": source, "target language": target}


def doubts(chosen: Sequence[SavedCheckpoint]) -> list[str]:
    """Return sentences about signs that checkpoints are of different runs, or of one that went on with other data."""
    notes = []
    folders = {checkpoint.data for checkpoint in chosen if checkpoint.data is not None}
    values = {"--seed": [each.seed for each in chosen]}
    if not all(map(_sizes, folders)):  # data that are there have been compared
        values["the data"] = [None if each.data is None else each.data.name for each in chosen]
    for name, of_each in values.items():
        paths: dict[object, Path] = {}
        for value, checkpoint in zip(of_each, chosen, strict=True):
            if value is not None:
                paths.setdefault(value, checkpoint.path)
        if len(paths) > 1:
            trained = " and ".join(f"{path} was trained with {name} {value}" for value, path in paths.items())
            notes.append(f"{trained}: average checkpoints of one run only.")
    return notes


def _sizes(folder: Path) -> dict[str, int]:
    """Return sizes of dictionaries and training sets, which identify a data directory; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        return {path.name: path.stat().st_size for path in (*folder.glob("dict.*"), *folder.glob("train.*"))}
    return {}
