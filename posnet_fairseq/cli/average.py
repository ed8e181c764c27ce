"""posnet-average: one checkpoint from several of a training run."""

import argparse
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from posnet_fairseq.checkpoints import (
    check_output,
    for_inference,
    model_arch,
    model_options,
    read_checkpoint,
    write_checkpoint,
)
from posnet_fairseq.cli._run import command
from posnet_fairseq.errors import UsageError
from posnet_fairseq.files import path_text
from posnet_fairseq.precompute import has_tables

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
        best: the best value of the run up to here, whether its checkpoint is still there or not.
        metric: what `valid` and `best` are; fairseq's default is the loss.
        maximize: whether more of it is better.
    """

    path: Path
    updates: int
    valid: float | None
    best: float | None = None
    metric: str = "loss"
    maximize: bool = False


def candidates(folder):
    """The numbered checkpoints of a folder in the order of training.

    Raises:
        UsageError: there are none.
    """
    found = {}
    for path in sorted(Path(folder).glob("checkpoint*.pt")):
        if not _NUMBERED.fullmatch(path.name):
            continue
        state = read_checkpoint(path)
        updates = state["optimizer_history"][-1]["num_updates"]
        # At the end of an epoch fairseq may write the same step twice, under its epoch and under its updates.
        found.setdefault(updates, _candidate(path, updates, state))
    if not found:
        raise UsageError(f"{folder} holds no numbered checkpoints (checkpoint*.pt). Check the path of --save-dir.")
    return [found[updates] for updates in sorted(found)]


def _candidate(path, updates, state):
    settings = state["cfg"].get("checkpoint", {})
    valid, best = (state.get("extra_state", {}).get(name) for name in ("val_loss", "best"))
    if valid is not None and not math.isfinite(valid):
        valid = None
    return Candidate(
        path,
        updates,
        valid,
        best,
        settings.get("best_checkpoint_metric", "loss"),
        settings.get("maximize_best_checkpoint_metric", False),
    )


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


def lost_best(run):
    """A sentence if the best validated checkpoint of a run is no longer among its candidates, else None."""
    best, sign = run[-1].best, -1 if run[-1].maximize else 1
    values = [candidate.valid for candidate in run if candidate.valid is not None]
    if best is None or not math.isfinite(best) or not values or sign * best >= min(sign * value for value in values):
        return None
    return (
        f"the best checkpoint of the run ({run[-1].metric} {best:.4f}) was not kept, so the best of what is left "
        "counts; train with a larger --keep-interval-updates to keep it."
    )


def average(paths):
    """The content of a checkpoint whose weights are the mean of those at `paths`, ready for inference.

    Raises:
        UsageError: the checkpoints are of different architectures or sizes.
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
        for name, *_ in names.values():
            sums[name] = sums.get(name, 0) + other["model"][name].double()
    model = {}
    for first, *others in names.values():
        dtype = state["model"][first].dtype
        if dtype in (torch.float16, torch.bfloat16):
            dtype = torch.float32  # their mean needs more precision than they have
        mean = (sums[first] / len(paths)).to(dtype)
        model |= dict.fromkeys((first, *others), mean)
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
    note = lost_best(run)
    if note:
        print(f"posnet-average: {note}", file=sys.stderr)
    with torch.no_grad():
        state = average([candidate.path for candidate in chosen])
    write_checkpoint(state, options.out)
    for candidate in chosen:
        valid = "" if candidate.valid is None else f", validation {candidate.metric} {candidate.valid:.4f}"
        print(f"{candidate.path} ({candidate.updates} updates{valid})")
    print(f"averaged into {options.out}")
