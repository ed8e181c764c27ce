"""posnet-precompute: a checkpoint whose position-based weights are stored as tables."""

import argparse

from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import path_text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-precompute",
        description="Store energies that depend on positions only as tables, and drop the parameters that compute "
        "them. The result translates as before, faster, wherever a checkpoint can be given; it cannot be trained.",
    )
    parser.add_argument("checkpoint", type=path_text, help="a trained or averaged model, also a language model")
    parser.add_argument("--out", type=path_text, required=True, help="the checkpoint to write")
    parser.add_argument(
        "--max-length",
        type=int,
        help="maximum length of sentences, source and target, end symbols included (default: that of the model). "
        "Tables of pairs of positions grow with its square",
    )
    parser.add_argument(
        "--or-copy", action="store_true", help="copy a model that has nothing to precompute, instead of refusing it"
    )
    parser.add_argument(
        "--data",
        type=path_text,
        help="dataset whose sentences must fit (default: that of the training)",
    )
    return parser


@parsed_by(_parser, prints_result=False, has_mixers=True)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-precompute."""
    if options.data and options.max_length is None:
        raise UsageError(f"--data {options.data}: it is read to check --max-length. Give that too, or leave it out.")
    from posnet_fairseq.inference.precomputing import write_precomputed

    arguments = options.checkpoint, options.out, options.max_length, options.data, options.or_copy
    print("\n".join(write_precomputed(*arguments)))
