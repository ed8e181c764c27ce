"""posnet-translate: plain text in, plain text out, a line for a line."""

import argparse

from posnet_fairseq.inference.options import (
    ON_LONG,
    add_load_options,
    add_search_options,
    add_to_option,
    check_search_options,
)
from posnet_fairseq.inference.search.search_settings import SETTINGS, SearchSettings, check_constrained, given_settings
from posnet_fairseq.shared.common_options import add_resume_option, parsed_by
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.files import path_text
from posnet_fairseq.text.sentences import check_splitting

# What is said of single translations.
_OF_ONE_SENTENCE = ("prefix", "constraints", "score_translations", "nbest", "print_alignment", "per_token", "json")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-translate", description="Translate plain text: a line in, a line out, in the same order."
    )
    parser.add_argument(
        "checkpoint", type=path_text, nargs="+", help="checkpoint or model folder; several make an ensemble"
    )
    add_search_options(parser, "to translate", "source tokens")
    add_to_option(parser)
    second = parser.add_mutually_exclusive_group()
    second.add_argument(
        "--prefix",
        type=path_text,
        help="text that every translation must begin with, or a file with such a text, which may be empty, for each "
        "line",
    )
    second.add_argument(
        "--score-translations",
        type=path_text,
        help="instead of translating, score the lines of this file as translations of the input: the log probability "
        "by forced decoding, divided by length to the power of --lenpen",
    )
    second.add_argument(
        "--constraints",
        type=path_text,
        help="file with texts that each translation must contain, as they are: a line for each line of input, texts "
        "with tabs between them, or nothing",
    )
    parser.add_argument(
        "--terms",
        type=path_text,
        help="file with lines SOURCE TERM, tab, TARGET TERM: where a source term occurs in a line, its translation "
        "must contain the target term as it is. How many do not is printed on standard error",
    )
    aligned = parser.add_mutually_exclusive_group()
    aligned.add_argument(
        "--print-alignment",
        action="store_const",
        const="subwords",
        help="append ||| I-J ... to each line: source token I has the largest cross-attention weight of target token "
        "J. Tokens are those of the model, from 0",
    )
    aligned.add_argument(
        "--print-word-alignment",
        dest="print_alignment",
        action="store_const",
        const="words",
        help="as --print-alignment, between words: J to the word that most of its subwords are aligned to",
    )
    parser.add_argument(
        "--per-token",
        action="store_true",
        help="append ||| TOKEN ... ||| LOG PROBABILITY ... to each line: subwords of the model and the end symbol",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print each translation as JSON, in a line: text, score, words with their log probabilities, and what "
        "--print-alignment and --per-token add",
    )
    parser.add_argument(
        "--on-long",
        choices=ON_LONG,
        default="error",
        help="if a line is longer than the model takes: stop (default), truncate it, or skip it (an empty "
        "translation with the score nan). The command stops before it translates anything of a window of 4,000 lines; "
        "with --stream, it translates the lines before that one",
    )
    parser.add_argument(
        "--split-sentences",
        action="store_true",
        help="split lines into sentences, translate each, and join the translations; spaces between sentences stay as "
        "they are. Needs the package sentencex",
    )
    add_load_options(parser, "shortlist")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--stream",
        action="store_true",
        help="read line by line and write each translation as soon as it is done, for pipes and terminals. Without "
        "this option 4,000 lines are read first, and lines of similar length are translated together, which is faster",
    )
    add_resume_option(how)
    parser.set_defaults(generates=False)
    return parser


@parsed_by(_parser, has_mixers=True)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-translate."""
    check_search_options(options)
    for name in (*SETTINGS, "nbest", "shortlist", "terms") if options.score_translations else ():
        if name != "lenpen" and getattr(options, name) not in (None, getattr(SearchSettings, name, None)):
            raise UsageError(
                f"--score-translations {options.score_translations} with {flag(name)}: nothing is searched for. Leave "
                "one of the two out."
            )
    constraints = {name: getattr(options, name) for name in ("terms", "constraints")}
    check_constrained(constraints, SearchSettings(**given_settings(options)))
    if options.split_sentences:
        check_splitting({name: getattr(options, name) for name in _OF_ONE_SENTENCE})
    from posnet_fairseq.inference.translating import translate

    translate(options)
