"""posnet-average: one checkpoint from several of a training run."""

import argparse
import sys
from pathlib import Path

from posnet_fairseq.inference.search.search_settings import RECORDED, SETTINGS, given_settings
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.errors import flag
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
    from posnet_fairseq.inference.averaging import write_average

    notes, lines = write_average(Path(options.folder), options.num, options.out, given_settings(options))
    for note in notes:
        print(f"posnet-average: {note}", file=sys.stderr)
    print("\n".join(lines))
