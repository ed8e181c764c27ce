"""posnet-mixers: the mixers that can take the place of self-attention, and their options."""

import argparse

from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.files import check_stdout
from posnet_fairseq.shared.garbage import search_paused
from posnet_fairseq.shared.numbers import check_numbers
from posnet_fairseq.transformer.sizes import SIZES


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-mixers", description="List the token mixers, or describe one of them and its options."
    )
    parser.add_argument("mixer", nargs="?", help="describe this one")
    parser.add_argument("--options", action="store_true", help="of the given mixer: its options and their defaults")
    parser.add_argument("--size", choices=SIZES, default="base", help="of the models whose parameters are counted")
    parser.add_argument("--words", type=int, default=43650, help="entries of their dictionary (default: 43650)")
    parser.add_argument("--length", type=int, default=25, help="N, tokens of a sentence (default: 25)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    memory = parser.add_argument_group("the memory of a training step, by simulation: needs no GPU, takes a minute")
    memory.add_argument("--memory", action="store_true", help="estimate it for the models of every mixer, or of one")
    memory.add_argument(
        "--max-tokens", type=int, help="tokens of a batch, as fairseq-train counts them (default: 4096)"
    )
    memory.add_argument("--precision", choices=("bf16", "fp16", "fp32"), help="of the training (default: bf16)")
    return parser


@command
@parsed_by(_parser)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-mixers."""
    check_stdout()
    check_numbers(options, words=(5, 1_000_000), length=(5, 1_000_000))
    for name in ("max_tokens", "precision"):
        if getattr(options, name) is not None and not options.memory:
            raise UsageError(f"{flag(name)} is an option of --memory. Give both, or neither.")
    with search_paused():
        from posnet_fairseq.cli import _mixer_tables
    _mixer_tables.show(options)
