"""Options of the commands that search: of the search, of translations, and of how a model computes."""

import argparse
import dataclasses
from collections.abc import Mapping
from typing import Any

from posnet_fairseq.inference.arguments import AUTO, DTYPES
from posnet_fairseq.inference.search.settings import RECORDED, SearchSettings
from posnet_fairseq.shared.errors import flag
from posnet_fairseq.shared.files import path_text


def add_search_options(parser: argparse.ArgumentParser, defaults: SearchSettings | None = None) -> None:
    """Add the options that :func:`settings_of` reads, and ``--nbest``.

    Args:
        parser: of the command.
        defaults: of the options. Default: what the model records, else those of :class:`SearchSettings`.
    """
    search = parser.add_argument_group("search")
    for name, meaning in RECORDED.items():
        value = getattr(defaults or SearchSettings(), name)
        default = f"default: {value:g}" if defaults else f"default: the model's own, else {value:g}"
        search.add_argument(
            flag(name), type=type(value), default=value if defaults else None, help=f"{meaning} ({default})"
        )
    search.add_argument("--min-len", type=int, default=1, help="fewest tokens, the end symbol not counted (default: 1)")
    search.add_argument("--unkpen", type=float, default=0.0, help="penalty for <unk> (default: 0)")
    search.add_argument("--temperature", type=float, default=1.0, help="divides scores before softmax (default: 1)")
    search.add_argument(
        "--no-repeat-ngram-size", type=int, default=0, help="repeat no sequence of this number of tokens (default: 0)"
    )
    search.add_argument("--sampling", action="store_true", help="draw --beam hypotheses at random instead")
    search.add_argument("--sampling-topk", type=int, default=0, help="draw among the K likeliest tokens (default: all)")
    search.add_argument(
        "--sampling-topp",
        type=float,
        default=1.0,
        help="draw among the fewest likeliest tokens whose probabilities sum to this at least (default: 1, all)",
    )
    search.add_argument(
        "--seed", type=int, default=1, help="of --sampling; equal lines get equal hypotheses (default: 1)"
    )
    search.add_argument(
        "--nbest",
        type=int,
        help="print this number of hypotheses of each line, best first, as Moses does: "
        "NUMBER ||| TEXT ||| SCORE, where numbers count from 0 (default: the text of the best one)",
    )


def settings_of(options: argparse.Namespace, recorded: Mapping[str, Any] | None = None) -> SearchSettings:
    """Return the settings of the search on a command line.

    Args:
        options: of the command line.
        recorded: settings that the model records, for those that are not given.
    """
    names = [setting.name for setting in dataclasses.fields(SearchSettings)]
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return SearchSettings(**dict(recorded or {}) | given)


def unless_given(options: argparse.Namespace, recorded: Mapping[str, Any]) -> str:
    """Return the recorded settings of a search that no option replaces, as options: ``--beam 5 --lenpen 1``.

    Args:
        options: of the command line.
        recorded: settings that the model records.
    """
    return " ".join(f"{flag(name)} {value:g}" for name, value in recorded.items() if getattr(options, name) is None)


def add_translation_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a search for translations that searches for other texts do not have."""
    parser.add_argument(
        "--prefix", type=path_text, help="file with what each translation must begin with, line by line; may be empty"
    )
    parser.add_argument(
        "--print-alignment",
        action="store_true",
        help="append ||| I-J ... to each line: target token J looks at source token I most. Tokens are those of the "
        "model, from 0",
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of how a model computes."""
    parser.add_argument("--fast", action="store_true", help="store position-based energies first: posnet-precompute")
    parser.add_argument(
        "--dtype",
        choices=(*DTYPES, AUTO),
        default="float32",
        help="precision (default: float32). The others are faster where the hardware has them, and less exact; int8 is "
        "for CPUs. auto is bf16 on GPUs that compute in it, else float32",
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        help="compile the layers with torch.compile, for GPUs: the first sentences take minutes. On CPUs it is slower "
        "than the packed weights whose place it takes, see docs/measurements.md",
    )
    parser.add_argument("--cpu", action="store_true", help="leave a GPU alone")
