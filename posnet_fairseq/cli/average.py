"""posnet-average: one checkpoint from several of a training run."""

import argparse
import sys
from pathlib import Path

import torch

from posnet_fairseq.fairseq_plugin.averaging import average, choose, doubts
from posnet_fairseq.fairseq_plugin.saved_checkpoints import (
    COPY,
    NUMBERED,
    copy_in,
    gap,
    lost_best,
    numbered_checkpoints,
)
from posnet_fairseq.inference.checkpoints import check_output, write_checkpoint
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import path_text


def _refuse_names_of_the_training(out: Path, folder: str) -> None:
    """Refuse a result whose name is one of the run's own checkpoints, whether that is there or not."""
    is_name = NUMBERED.fullmatch(out.name) or COPY.fullmatch(out.name)
    if is_name and out.parent.is_dir() and out.parent.samefile(folder):
        raise UsageError(f"--out {out} is the name of a checkpoint of the training itself. Give another name.")


@command
def main(arguments: list[str] | None = None) -> None:
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
    _refuse_names_of_the_training(Path(options.out), options.folder)

    run = numbered_checkpoints(options.folder)
    check_output(options.out, "--out", [checkpoint.path for checkpoint in run])
    chosen = choose(run, options.num)
    last = copy_in(options.folder, "last") if chosen[-1] is run[-1] else None
    for note in (lost_best(run, copy_in(options.folder, "best")), gap(chosen, last), *doubts(chosen)):
        if note:
            print(f"posnet-average: {note}", file=sys.stderr)
    with torch.no_grad():
        state = average([checkpoint.path for checkpoint in chosen])
    write_checkpoint(state, options.out)
    for checkpoint in chosen:
        valid = "" if checkpoint.valid is None else f", validation {checkpoint.metric} {checkpoint.valid:.4f}"
        print(f"{checkpoint.path} ({checkpoint.updates} updates{valid})")
    print(f"averaged into {options.out}")
