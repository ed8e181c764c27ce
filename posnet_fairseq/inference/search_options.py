"""Options of the commands that translate: of text, of the search, and of how a model computes."""

import argparse
from collections.abc import Mapping
from typing import Any

from posnet_fairseq.inference.arguments import ALIASES, AUTO, DTYPES, MAX_TOKENS
from posnet_fairseq.inference.search.search_settings import RECORDED, SETTINGS, SearchSettings
from posnet_fairseq.shared.common_options import add_device_option
from posnet_fairseq.shared.errors import flag
from posnet_fairseq.shared.files import path_text


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where dictionaries are, and how plain text is split into tokens."""
    parser.add_argument(
        "--data", type=path_text, help="directory with dictionaries (default: the one the model was trained on)"
    )
    text = parser.add_mutually_exclusive_group()
    text.add_argument(
        "--sentencepiece-model",
        type=path_text,
        help="split text by this model (default: as in the data card, and no other)",
    )
    text.add_argument(
        "--bpe-codes",
        type=path_text,
        help="apply these BPE codes after Moses tokenization (default: as in the data card, and no others)",
    )
    text.add_argument("--pretokenized", action="store_true", help="the text is already split into tokens; keep it")


def text_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that say how text is split into tokens, by name."""
    return {name: getattr(options, name) for name in ("pretokenized", "bpe_codes", "sentencepiece_model")}


def add_search_options(
    parser: argparse.ArgumentParser, what: str, tokens: str, defaults: SearchSettings | None = None
) -> None:
    """Add the options that all searches have: of text, of the search, and of how a model computes.

    Without `defaults` the settings that a model can record are left open, so that its own come first.
    """
    parser.add_argument("--input", type=path_text, default="-", help=f"file {what} (default: standard input)")
    parser.add_argument("--output", type=path_text, default="-", help="file to write (default: standard output)")
    parser.add_argument(
        "--max-tokens", type=int, default=MAX_TOKENS, help=f"{tokens} in a batch (default: {MAX_TOKENS})"
    )
    add_text_options(parser)
    parser.add_argument(
        "--fast", action="store_true", help="store position energies in memory first, as posnet-export does"
    )
    parser.add_argument(
        "--dtype",
        type=lambda name: ALIASES.get(name, name),
        choices=(*DTYPES, AUTO),
        default="float32",
        help="precision (default: float32). The others are faster where the hardware has them, and less exact; int8 is "
        "for CPUs. auto is bf16 on GPUs that compute in it, else float32",
    )
    add_device_option(parser)
    parser.add_argument(
        "--processes",
        type=int,
        help="number of processes that share the batches of the text; on GPUs each has one of its own (default: for a "
        "file on a CPU, one for each core and batch, up to 16, with one thread each; otherwise 1)",
    )
    search = parser.add_argument_group("search")
    for name, (_, _, meaning) in SETTINGS.items():
        value = getattr(defaults or SearchSettings(), name)
        is_open = name in RECORDED and defaults is None
        own = "the model's own, else " if is_open else ""
        if isinstance(value, bool):
            search.add_argument(flag(name), action="store_true", help=meaning)
            continue
        search.add_argument(
            flag(name),
            type=type(value),
            default=None if is_open else value,
            help=f"{meaning} (default: {own}{value:g})",
        )
    search.add_argument(
        "--nbest",
        type=int,
        help="print this number of hypotheses of each line, best first, as Moses does: "
        "NUMBER ||| TEXT ||| SCORE, where numbers count from 0 (default: the text of the best one)",
    )


def settings_of(options: argparse.Namespace, recorded: Mapping[str, Any] | None = None) -> SearchSettings:
    """Return the settings of the search on a command line; what is not given is as the model records it."""
    given = {name: getattr(options, name) for name in SETTINGS if getattr(options, name) is not None}
    return SearchSettings(**dict(recorded or {}) | given)
