"""posnet-generate: beginnings of plain texts in, whole texts out, a line for a line."""

import argparse

from posnet_fairseq.inference.options import add_search_options, check_search_options
from posnet_fairseq.inference.search.search_settings import OF_TEXTS
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.files import path_text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-generate",
        description="Continue texts with a language model: the beginning of a text in, the whole text out, a line for "
        "a line, in the same order.",
    )
    parser.add_argument("checkpoint", type=path_text, nargs=1, help="language model to use")
    add_search_options(parser, "of beginnings", "tokens of the texts", OF_TEXTS)
    # What posnet-translate has options for, and texts are not continued with.
    absent = dict.fromkeys(
        "prefix constraints terms score_translations print_alignment shortlist split_sentences".split()
    )
    parser.set_defaults(generates=True, stream=False, resume=False, json=False, per_token=False, **absent)
    parser.set_defaults(on_long="error")
    return parser


@parsed_by(_parser, has_mixers=True)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-generate."""
    check_search_options(options)
    from posnet_fairseq.inference.translating import translate

    translate(options, "posnet-generate")
