"""posnet-translate: plain text in, plain text out, a line for a line."""

import argparse

from posnet_fairseq.inference.options import ON_LONG, add_load_options, add_search_options, check_search_options
from posnet_fairseq.inference.search.search_settings import SETTINGS, SearchSettings
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.files import path_text
from posnet_fairseq.text.sentences import check_splitting

# What is said of single translations.
_OF_ONE_SENTENCE = ("prefix", "score_translations", "nbest", "print_alignment", "per_token", "json")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-translate", description="Translate plain text: a line in, a line out, in the same order."
    )
    parser.add_argument(
        "checkpoint", type=path_text, nargs="+", help="checkpoint or model folder; several make an ensemble"
    )
    add_search_options(parser, "to translate", "source tokens")
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
        help="if a line is longer than the model takes: stop (default), truncate it, or leave its translation empty. "
        "The command stops before it translates anything of a window of 4,000 lines; with --stream, it translates the "
        "lines before that one",
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
    how.add_argument(
        "--resume",
        action="store_true",
        help="resume from OUTPUT.partial, where an interrupted command has left its finished translations, and refuse "
        "those of another command. Without this option the command resumes its own, and replaces those of another",
    )
    parser.set_defaults(generates=False)
    return parser


@parsed_by(_parser, has_mixers=True)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-translate."""
    check_search_options(options)
    for name in (*SETTINGS, "nbest", "shortlist") if options.score_translations else ():
        if name != "lenpen" and getattr(options, name) not in (None, getattr(SearchSettings, name, None)):
            raise UsageError(
                f"--score-translations {options.score_translations} with {flag(name)}: nothing is searched for. Leave "
                "one of the two out."
            )
    if options.split_sentences:
        check_splitting({name: getattr(options, name) for name in _OF_ONE_SENTENCE})
    from posnet_fairseq.inference.translating import translate

    translate(options)
