"""One checkpoint from several of a training run: which ones, and the mean of their weights."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from posnet_fairseq.inference import checkpoints
from posnet_fairseq.inference.checkpoints import State, Weights
from posnet_fairseq.inference.saved_checkpoints import SavedCheckpoint
from posnet_fairseq.inference.stored_energies import has_tables
from posnet_fairseq.inference.vocabularies import data_folder, languages_of
from posnet_fairseq.inference.weights import refuse_not_finite
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.selection import best_and_following


def choose(run: Sequence[SavedCheckpoint], number: int) -> list[SavedCheckpoint]:
    """Return the checkpoints of a run, in the order of training, to average, see :func:`best_and_following`."""
    if not 1 <= number <= len(run):
        raise UsageError(
            f"--num {number}: give 1 or more; there are only {len(run)} checkpoints. Train with a smaller "
            "--save-interval-updates and a larger --keep-interval-updates to keep more."
        )
    valid = [checkpoint.valid for checkpoint in run]
    return [run[index] for index in best_and_following(valid, number, any(checkpoint.maximize for checkpoint in run))]


def average(paths: Sequence[Path]) -> State:
    """Return the content of a checkpoint for inference whose weights are the mean of several checkpoints of one run.

    Where all of them have moving averages of the weights (--store-ema), it is the mean of these. Its ``extra_state``
    has the number of checkpoints with moving averages as "moving", if there are any.
    """
    state = checkpoints.read_checkpoint(paths[-1])
    if has_tables(state["model"]):
        raise UsageError(
            f"{paths[-1]} is precomputed: the mean of its tables is not the table of mean weights. Average the "
            "checkpoints of the training, then precompute the result."
        )
    moving = sum(bool(_moving_averages(path, checkpoints.read_checkpoint(path))) for path in paths)
    # Names of one shared tensor, as of embeddings, stay names of one tensor.
    names: dict[Any, list[str]] = {}
    for name, tensor in state["model"].items():
        names.setdefault((tensor.data_ptr(), tensor.shape), []).append(name)
    sums: dict[str, torch.Tensor] = {}
    for path in paths:
        other = checkpoints.read_checkpoint(path)
        if difference := _difference(paths[-1], state, path, other):
            raise UsageError(f"{difference}. Average checkpoints of one run.")
        weights = _moving_averages(path, other) if moving == len(paths) else other["model"]
        refuse_not_finite(weights, path)
        for name, *_ in names.values():
            tensor = weights[name].double()
            sums[name] = sums[name] + tensor if name in sums else tensor
    model: dict[str, torch.Tensor] = {}
    for first, *others in names.values():
        dtype = state["model"][first].dtype
        if dtype in (torch.float16, torch.bfloat16):
            dtype = torch.float32  # their mean needs more precision than they have
        mean = (sums[first] / len(paths)).to(dtype)
        model |= dict.fromkeys((first, *others), mean)
    refuse_not_finite(model, f"the mean of {', '.join(map(str, paths))}")
    extra = {"moving": moving} if moving else {}
    return checkpoints.for_inference(state, model, averaged=[str(path) for path in paths], **extra)


def _moving_averages(path: Path, state: State) -> Weights:
    """Return the moving averages of weights that fairseq keeps with --store-ema, none if there are none."""
    found = (state.get("extra_state") or {}).get("ema") or {}
    if found and not (isinstance(found, dict) and _shapes(found) == _shapes(state["model"])):
        raise UsageError(f"{path}: its moving averages (--store-ema) are not of the model's weights. Take another one.")
    return found


def _shapes(weights: Weights) -> dict[str, tuple[int, ...]]:
    return {name: tuple(getattr(tensor, "shape", ())) for name, tensor in weights.items()}


def _difference(path: Path, state: State, other_path: Path, other: State) -> str | None:
    """Return what shows that two checkpoints are of different models, tasks or data, as far as checkpoints tell."""
    if checkpoints.model_arch(other) != checkpoints.model_arch(state):
        return f"{path} is a {checkpoints.model_arch(state)} and {other_path} a {checkpoints.model_arch(other)}"
    sides: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "option": (checkpoints.model_options(state), checkpoints.model_options(other)),
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
