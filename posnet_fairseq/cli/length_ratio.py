"""posnet-length-ratio: γ of a binarized training set."""

import argparse
import json

from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.files import check_stdout, path_text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-length-ratio",
        description="Print γ, the source tokens per target token of a binarized training set (end symbols counted), "
        "as --length-ratio auto measures it: of train, train1, train2, and so on.",
    )
    parser.add_argument("data", type=path_text, help="a directory that fairseq-preprocess wrote")
    parser.add_argument("-s", "--source-lang", help="default: as in the names of its files")
    parser.add_argument("-t", "--target-lang", help="default: as in the names of its files")
    parser.add_argument("--train-subset", metavar="NAME", default="train", help="training set (default: train)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


@parsed_by(_parser)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-length-ratio."""
    check_stdout()
    from posnet_fairseq.inference import measured_length_ratio

    languages = options.source_lang, options.target_lang
    source, target = measured_length_ratio.measure(options.data, *languages, options.train_subset)
    if options.json:
        print(json.dumps({"length_ratio": source / target, "source_tokens": source, "target_tokens": target}))
        return
    print(f"{source / target:.6f} ({source:,} source tokens / {target:,} target tokens)")
