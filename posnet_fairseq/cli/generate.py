"""posnet-generate: beginnings of plain texts in, whole texts out, a line for a line."""

import argparse

from posnet_fairseq.inference.arguments import MAX_TOKENS, MAX_TOKENS_LIMITS
from posnet_fairseq.inference.search.settings import OF_TEXTS
from posnet_fairseq.inference.search_options import add_model_options, add_search_options, settings_of
from posnet_fairseq.inference.text_options import add_text_options
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.files import path_text
from posnet_fairseq.shared.schema import check_numbers


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-generate",
        description="Continue texts with a language model: the beginning of a text in, the whole text out, a line for "
        "a line, in the same order.",
    )
    parser.add_argument("checkpoint", type=path_text, nargs=1, help="language model to use")
    parser.add_argument("--input", type=path_text, default="-", help="file of beginnings (default: standard input)")
    parser.add_argument("--output", type=path_text, default="-", help="file to write (default: standard output)")
    add_text_options(parser)
    add_search_options(parser, OF_TEXTS)
    parser.add_argument(
        "--max-tokens", type=int, default=MAX_TOKENS, help=f"tokens of the texts in a batch (default: {MAX_TOKENS})"
    )
    add_model_options(parser)
    # What posnet-translate has options for, and texts are not continued with.
    parser.set_defaults(
        generates=True,
        prefix=None,
        print_alignment=False,
        on_long="error",
        shortlist=None,
        processes=1,
        stream=False,
        resume=False,
    )
    return parser


@command
@parsed_by(_parser, has_mixers=True)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-generate."""
    settings_of(options).check()
    check_numbers(options, max_tokens=MAX_TOKENS_LIMITS)
    from posnet_fairseq.inference.translating import translate

    translate(options, "posnet-generate")
