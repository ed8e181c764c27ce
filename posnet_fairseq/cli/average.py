"""posnet-average: one checkpoint from several of a training run."""

import argparse
import contextlib
import itertools
import math
import re
import sys
from dataclasses import dataclass
from numbers import Real
from pathlib import Path

import torch

from posnet_fairseq.fairseq_plugin.loading import refuse_not_finite
from posnet_fairseq.inference.checkpoints import (
    check_output,
    for_inference,
    model_arch,
    model_options,
    read_checkpoint,
    write_checkpoint,
)
from posnet_fairseq.inference.precompute import has_tables
from posnet_fairseq.inference.vocabularies import data_folder, languages_of
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import path_text

# checkpoint3.pt (an epoch) and checkpoint_3_1500.pt (updates), but not their copies such as checkpoint_best.pt.
_NUMBERED = re.compile(r"checkpoint(\d+|_\d+_\d+)\.pt")
_COPY = re.compile(r"checkpoint_(last|best)\.pt")


@dataclass(frozen=True)
class Candidate:
    """A checkpoint of a run, without its tensors.

    Attributes:
        path: the file.
        updates: done when it was written.
        valid: the run's ``--best-checkpoint-metric`` on the validation set, None if it was not validated or is no
            finite number.
        metric: what `valid` is; fairseq's default is the loss.
        maximize: whether more of it is better.
        interval: the run's ``--save-interval-updates``, 0 or less if it had none.
        epochs: the run's ``--save-interval``.
        numbered: whether it was written under a number, beside its copies.
    """

    path: Path
    updates: int
    valid: float | None
    metric: str = "loss"
    maximize: bool = False
    interval: int = 0
    epochs: int = 1
    numbered: bool = True

    @property
    def epoch(self) -> int | None:
        """Of a file that is called after its epoch; None of others."""
        match = re.fullmatch(r"checkpoint(\d+)\.pt", self.path.name)
        return int(match[1]) if match else None


def candidates(folder):
    """The numbered checkpoints of a folder in the order of training.

    Raises:
        UsageError: there are none, or they are of several runs.
    """
    found = {}
    for path in sorted(Path(folder).glob("checkpoint*.pt")):
        if not _NUMBERED.fullmatch(path.name):
            continue
        candidate = _candidate(path)
        # The end of an epoch may be written twice, under its epoch and under its updates.
        other = found.setdefault(candidate.updates, candidate)
        if other is not candidate and not _same_step(other.path, path):
            raise UsageError(
                f"{other.path} and {path} both have {other.updates} updates and different weights, so they are of "
                "different runs. Move those of one run to another folder."
            )
    if not found:
        raise UsageError(f"{folder} holds no numbered checkpoints (checkpoint*.pt). Check the path of --save-dir.")
    run = [found[updates] for updates in sorted(found)]
    for candidate in run:
        if candidate.metric != run[-1].metric:
            raise UsageError(
                f"{candidate.path} was validated by {candidate.metric} and {run[-1].path} by {run[-1].metric} "
                "(--best-checkpoint-metric), so no best one can be found. Move those of one metric to another folder."
            )
    return run


def _candidate(path):
    state = read_checkpoint(path)
    updates = state["optimizer_history"][-1]["num_updates"]
    extra, settings = state.get("extra_state", {}), state["cfg"].get("checkpoint", {})
    _refuse_unless(path, isinstance(extra, dict) and isinstance(settings, dict))
    valid = extra.get("val_loss")
    interval, epochs = settings.get("save_interval_updates", 0), settings.get("save_interval", 1)
    _refuse_unless(path, isinstance(interval, int) and isinstance(epochs, int))
    _refuse_unless(path, valid is None or isinstance(valid, Real))
    return Candidate(
        path,
        updates,
        valid if valid is not None and math.isfinite(valid) else None,
        settings.get("best_checkpoint_metric", "loss"),
        settings.get("maximize_best_checkpoint_metric", False),
        interval,
        epochs,
        (interval > 0 and updates % interval == 0) or _has_file_of_epoch(extra.get("train_iterator"), settings),
    )


def _has_file_of_epoch(position, settings):
    """Whether a checkpoint was also written under its epoch: it ends one, so that training goes on with the next."""
    match position:
        case {"epoch": int(following), "iterations_in_epoch": 0} if not settings.get("no_epoch_checkpoints"):
            return (following - 1) % max(settings.get("save_interval", 1), 1) == 0
    return False


def _refuse_unless(path, complete):
    if not complete:
        raise UsageError(
            f"{path} does not say its intervals and its validation as a checkpoint of fairseq-train does. Take it out "
            "of the folder."
        )


def _same_step(path, other_path):
    """Whether two checkpoints of as many updates are one: every update changes all biases and gains."""
    model, other = (read_checkpoint(each)["model"] for each in (path, other_path))
    small = {name: tensor for name, tensor in model.items() if tensor.dim() == 1}
    return all(name in other and torch.equal(small[name].nan_to_num(), other[name].nan_to_num()) for name in small)


def copy_in(folder, name) -> Candidate | None:
    """What ``checkpoint_best.pt`` or ``checkpoint_last.pt`` of a folder is a copy of; None if it cannot be read.

    Args:
        folder: the --save-dir.
        name: ``best`` or ``last``.
    """
    try:
        return _candidate(Path(folder, f"checkpoint_{name}.pt"))
    except UsageError:
        return None


def choose(run, number):
    """The best validated checkpoint and the number - 1 that follow it; the last ones where fewer follow.

    This is how the PosNet paper (Schmidt and Di Gangi, WMT 2023, Section 5.3) chooses. Without validation
    it is the last ones.

    Args:
        run: candidates in the order of training.
        number: how many to take.

    Raises:
        UsageError: there are not as many.
    """
    if number < 1:
        raise UsageError(f"--num {number}: give 1 or more.")
    if len(run) < number:
        raise UsageError(
            f"--num {number}: there are only {len(run)} checkpoints. Give a smaller number, or train with a smaller "
            "--save-interval-updates and a larger --keep-interval-updates."
        )
    validated = [index for index, candidate in enumerate(run) if candidate.valid is not None]
    best = min(validated, key=lambda i: -run[i].valid if run[i].maximize else run[i].valid, default=len(run))
    start = min(best, len(run) - number)
    return run[start : start + number]


def lost_best(run, best) -> str | None:
    """A sentence if the best validated checkpoint of a run was numbered and is no longer there, else None.

    Args:
        run: candidates in the order of training.
        best: what the run's ``checkpoint_best.pt`` is a copy of, or None.
    """
    if best is None or best.valid is None or not best.numbered or best.updates > run[-1].updates:
        return None
    sign = -1 if best.maximize else 1
    as_good = (candidate.valid is not None and sign * candidate.valid <= sign * best.valid for candidate in run)
    if any(as_good) or best.updates in {candidate.updates for candidate in run}:
        return None
    return (
        f"the best checkpoint of the run ({best.metric} {best.valid:.4f} after {best.updates} updates) was not kept, "
        "so the best of what is left counts; train with a larger --keep-interval-updates to keep it."
    )


def gap(chosen, last=None) -> str | None:
    """A sentence if checkpoints are missing that the run wrote between those that are chosen, else None.

    Args:
        chosen: candidates in the order of training.
        last: the end of the run if nothing that is there comes after them: what ``checkpoint_last.pt`` is a copy of.
    """
    updates, epochs = [], []
    for before, after in itertools.pairwise(chosen):
        if after.interval > 0:
            updates.append(_due(before.updates, after.updates, after.interval))
        elif before.epoch is not None and after.epoch is not None:
            epochs.append(_due(before.epoch, after.epoch, after.epochs))
    if last is not None and last.interval > 0:
        updates.append(_due(chosen[-1].updates, last.updates + 1, last.interval))
    missing = [
        f"{what} {_some(ranges)}" for what, ranges in (("after updates", updates), ("of epochs", epochs)) if any(ranges)
    ]
    if not missing:
        return None
    return (
        f"the checkpoints {' and '.join(missing)} are not there, so those that are averaged do not follow one another; "
        "train with a larger --keep-interval-updates to keep them."
    )


def _due(begin, end, step):
    """Multiples of `step` after `begin` and before `end`."""
    return range(begin // step * step + step, end, step) if step > 0 else range(0)


def _some(ranges, number=5):
    """The first few numbers of ranges, and how many more there are."""
    first = list(itertools.islice(itertools.chain(*ranges), number))
    more = sum(map(len, ranges)) - len(first)
    return ", ".join(map(str, first)) + (f" and {more} more" if more else "")


def average(paths):
    """The content of a checkpoint whose weights are the mean of those at `paths`, ready for inference.

    Raises:
        UsageError: the checkpoints are of different architectures, sizes or runs, or their weights are not finite.
    """
    state = read_checkpoint(paths[-1])
    if has_tables(state["model"]):
        raise UsageError(
            f"{paths[-1]} is precomputed: the mean of its tables is not the table of mean weights. Average the "
            "checkpoints of the training, then precompute the result."
        )
    # Names of one shared tensor, as of embeddings, stay names of one tensor.
    names = {}
    for name, tensor in state["model"].items():
        names.setdefault((tensor.data_ptr(), tensor.shape), []).append(name)
    sums = {}
    for path in paths:
        other = read_checkpoint(path)
        _check_same_model(paths[-1], state, path, other)
        _check_same_run(paths[-1], state, path, other)
        refuse_not_finite(other["model"], path)
        for name, *_ in names.values():
            sums[name] = sums.get(name, 0) + other["model"][name].double()
    model = {}
    for first, *others in names.values():
        dtype = state["model"][first].dtype
        if dtype in (torch.float16, torch.bfloat16):
            dtype = torch.float32  # their mean needs more precision than they have
        mean = (sums[first] / len(paths)).to(dtype)
        model |= dict.fromkeys((first, *others), mean)
    refuse_not_finite(model, f"the mean of {', '.join(map(str, paths))}")
    return for_inference(state, model, averaged=[str(path) for path in paths])


def _shapes(state):
    return {name: tuple(tensor.shape) for name, tensor in state["model"].items()}


def _check_same_model(path, state, other_path, other):
    if model_arch(other) != model_arch(state):
        raise UsageError(
            f"{path} is a {model_arch(state)} and {other_path} a {model_arch(other)}. Average checkpoints of one run."
        )
    sides = {"option": (model_options(state), model_options(other)), "size of": (_shapes(state), _shapes(other))}
    for what, (ours, theirs) in sides.items():
        if ours != theirs:
            name = min(name for name, _ in ours.items() ^ theirs.items())
            raise UsageError(f"{path} and {other_path} differ in the {what} {name}. Average checkpoints of one run.")


def _check_same_run(path, state, other_path, other):
    """Refuse what was trained on something else, as far as checkpoints tell."""
    ours, theirs = map(_trained_on, (state, other))
    data = list(map(data_folder, (state, other)))
    known = {name: values for name in ours if None not in (values := (ours[name], theirs[name]))}
    if all(sizes := list(map(_sizes, data))) and sizes[0] != sizes[1]:
        known["data"] = data
    for name, (mine, others) in known.items():
        if mine != others:
            raise UsageError(
                f"{path} was trained with the {name} {mine} and {other_path} with {others}, so they are of different "
                "runs. Average checkpoints of one run."
            )


def _trained_on(state):
    """What is the same for all checkpoints of a run; None where a checkpoint does not tell."""
    source, target = languages_of(state) or (None, None)
    return {"task": state["cfg"]["task"].get("_name"), "source language": source, "target language": target}


def doubts(paths) -> list[str]:
    """Sentences about what may tell checkpoints of different runs, or of a run that went on elsewhere or otherwise."""
    seeds, data, folders = {}, {}, set()
    for path in paths:
        state = read_checkpoint(path)
        folder, common = data_folder(state), state["cfg"].get("common")
        folders.add(folder)
        data.setdefault(folder.name, path)
        if isinstance(common, dict):
            seeds.setdefault(common.get("seed"), path)
    notes = []
    for name, values in (("--seed", seeds), ("the data", data)):
        # Data that are there have been compared.
        if len(values) > 1 and not (values is data and all(map(_sizes, folders))):
            trained = " and ".join(f"{path} was trained with {name} {value}" for value, path in values.items())
            notes.append(f"{trained}: average checkpoints of one run only.")
    return notes


def _sizes(folder):
    """What tells a data directory from others, wherever it lies; nothing if it is not there or cannot be looked at."""
    with contextlib.suppress(OSError):
        paths = [path for path in folder.glob("*") if path.name.startswith(("dict.", "train."))]
        return {path.name: path.stat().st_size for path in paths}
    return {}


def _refuse_names_of_the_training(out, folder):
    """Refuse a result that would be taken for a checkpoint of the run, by its name, whether that is there or not."""
    out = Path(out)
    is_name = _NUMBERED.fullmatch(out.name) or _COPY.fullmatch(out.name)
    if is_name and out.parent.is_dir() and out.parent.samefile(folder):
        raise UsageError(f"--out {out} is the name of a checkpoint of the training itself. Give another name.")


@command
def main(arguments=None):
    """Entry point of posnet-average."""
    parser = argparse.ArgumentParser(
        prog="posnet-average",
        description="Average the checkpoints of a run: the best one on the validation set and those that follow it, "
        "or the last ones where fewer follow.",
    )
    parser.add_argument("folder", type=path_text, help="the run's --save-dir")
    parser.add_argument("--num", type=int, required=True, help="how many checkpoints to average")
    parser.add_argument("--out", type=path_text, required=True, help="the checkpoint to write")
    options = parser.parse_args(arguments)
    if not Path(options.folder).is_dir():
        raise UsageError(f"{options.folder}: there is no such directory. Give the --save-dir of a run.")
    _refuse_names_of_the_training(options.out, options.folder)

    run = candidates(options.folder)
    check_output(options.out, "--out", [candidate.path for candidate in run])
    chosen = choose(run, options.num)
    last = copy_in(options.folder, "last") if chosen[-1] is run[-1] else None
    paths = [candidate.path for candidate in chosen]
    for note in (lost_best(run, copy_in(options.folder, "best")), gap(chosen, last), *doubts(paths)):
        if note:
            print(f"posnet-average: {note}", file=sys.stderr)
    with torch.no_grad():
        state = average(paths)
    write_checkpoint(state, options.out)
    for candidate in chosen:
        valid = "" if candidate.valid is None else f", validation {candidate.metric} {candidate.valid:.4f}"
        print(f"{candidate.path} ({candidate.updates} updates{valid})")
    print(f"averaged into {options.out}")
