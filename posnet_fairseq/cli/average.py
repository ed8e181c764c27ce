"""posnet-average: one checkpoint from several of a training run."""

import argparse
import sys
from pathlib import Path

from posnet_fairseq.inference.search.search_settings import ENTRY, RECORDED, SETTINGS, SearchSettings, given_settings
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.errors import UsageError, counted, flag
from posnet_fairseq.shared.files import path_text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-average",
        description="Average checkpoints of a run: the best one on the validation set and those after it, or the last "
        "ones if too few follow. If all have moving averages of the weights (--store-ema), these are averaged.",
    )
    parser.add_argument("folder", type=path_text, help="the run's --save-dir")
    parser.add_argument("--num", type=int, required=True, help="number of checkpoints to average")
    parser.add_argument("--out", type=path_text, required=True, help="the checkpoint to write")
    search = parser.add_argument_group("search settings to record in it: the defaults of posnet-translate")
    for name in RECORDED:
        search.add_argument(flag(name), type=type(SETTINGS[name].default), help=SETTINGS[name].metadata["help"])
    return parser


@parsed_by(_parser, prints_result=False, has_mixers=True)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-average."""
    import torch

    from posnet_fairseq.inference import averaging, checkpoints

    recorded = given_settings(options)
    SearchSettings(**recorded)  # refuses what no search takes
    folder, out = Path(options.folder), Path(options.out)
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such directory. Give the --save-dir of a run.")
    if averaging.is_name_of_training(out.name) and out.parent.is_dir() and out.parent.samefile(folder):
        raise UsageError(f"--out {out} is the name of a checkpoint of the training itself. Give another name.")
    run = averaging.numbered_checkpoints(folder)
    checkpoints.check_output(options.out, "--out", [checkpoint.path for checkpoint in run])
    chosen = averaging.choose(run, options.num)
    notes = [averaging.lost_best(run, averaging.best_of(folder)), *averaging.doubts(chosen)]
    with torch.no_grad():
        state = averaging.average([checkpoint.path for checkpoint in chosen])
    moving = state["extra_state"].get("moving", 0)
    if 0 < moving < len(chosen):
        notes.append(
            f"only {moving} of them have moving averages (--store-ema), so the weights as they were trained are "
            "averaged."
        )
    for note in filter(None, notes):
        print(f"posnet-average: {note}", file=sys.stderr)
    if recorded:
        state["extra_state"][ENTRY] = recorded
    checkpoints.write_checkpoint(state, out)
    for checkpoint in chosen:
        valid = "" if checkpoint.valid is None else f", validation {checkpoint.metric} {checkpoint.valid:.4f}"
        print(f"{checkpoint.path} ({counted(checkpoint.updates, 'update')}{valid})")
    of = "moving averages of the weights (--store-ema) " if moving == len(chosen) else ""
    print(f"{of}averaged into {out}")
