"""How models are loaded, in Python and by commands, and the options of those that search. This module has no torch."""

import argparse
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from posnet_fairseq.inference.search.search_settings import RECORDED, SETTINGS, SearchSettings, given_settings
from posnet_fairseq.shared.common_options import add_device_option
from posnet_fairseq.shared.errors import UsageError, flag, option
from posnet_fairseq.shared.files import path_text
from posnet_fairseq.shared.schema import check_numbers

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "bf16", "fp16", "int8")
ALIASES = {"fp32": "float32"}
AUTO = "auto"  # bf16 on GPUs that compute in it, else float32
# Source tokens in a batch.
MAX_TOKENS = 2000
MAX_TOKENS_LIMITS = (1, 1_000_000_000)
_PROCESSES_LIMITS = (1, 1000)
# What happens to a line of more tokens than the model takes.
ON_LONG = ("error", "truncate", "skip")
# What posnet-export writes into a model folder where it is asked for.
SHORTLIST, CTRANSLATE2 = "shortlist.safetensors", "ctranslate2"


class LoadArguments(TypedDict, total=False):
    """How a language model is loaded, as keyword arguments: :class:`LoadOptions` has the defaults."""

    device: "str | torch.device"
    dtype: str
    fast: bool
    pretokenized: bool
    bpe_codes: str | Path | None
    sentencepiece_model: str | Path | None


class TranslationLoadArguments(LoadArguments, total=False):
    """How translation models are loaded, as keyword arguments."""

    shortlist: str | Path | None
    onnx: bool


def _option(default: Any, meaning: str) -> Any:
    """Return a field of :class:`LoadOptions`, with what ``--help`` says of its option."""
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How trained models are loaded, see :func:`posnet_fairseq.api.load`; a UsageError if a value is impossible."""

    data: str | Path | None = _option(None, "directory with dictionaries (default: the one the model was trained on)")
    device: Any = "cpu"  # str | torch.device
    dtype: str = _option(
        "float32",
        "precision (default: float32). The others are faster where the hardware has them, and less exact; int8 is for "
        "CPUs. auto is bf16 on GPUs that compute in it, else float32",
    )
    fast: bool = _option(False, "store position energies in memory first, as posnet-export does")
    sentencepiece_model: str | Path | None = _option(
        None, "split text by this model (default: as in the data card, and no other)"
    )
    bpe_codes: str | Path | None = _option(
        None, "apply these BPE codes after Moses tokenization (default: as in the data card, and no others)"
    )
    pretokenized: bool = _option(False, "the text is already split into tokens; keep it")
    shortlist: str | Path | None = _option(
        None,
        "search only among the likely target words for the source words of a batch, from a file of posnet-export "
        "--shortlist-from. Faster, and less exact (default: all words)",
    )
    onnx: bool = False

    def __post_init__(self) -> None:
        wanted: dict[Any, str] = {bool: "True or False", str: "a name", str | Path | None: "a path"}
        for setting in fields(self):
            value: Any = getattr(self, setting.name)
            kind: Any = setting.type
            if kind in wanted and (not isinstance(value, kind) or value == ""):
                raise UsageError(f"{option(setting.name)} {value!r:.50}: give {wanted[kind]}.")
        if self.pretokenized + (self.bpe_codes is not None) + (self.sentencepiece_model is not None) > 1:
            names = " and ".join(map(option, ("bpe_codes", "sentencepiece_model", "pretokenized")))
            raise UsageError(f"{names} split text in different ways. Give one of them.")


TEXT_OPTIONS = ("sentencepiece_model", "bpe_codes", "pretokenized")


def add_load_options(parser: Any, *names: str) -> None:
    """Add options of :class:`LoadOptions` to a parser, or to a group of its options."""
    for setting in fields(LoadOptions):
        if setting.name in names:
            kind: dict[str, Any] = {"type": path_text}
            if setting.type is bool:
                kind = {"action": "store_true"}
            elif setting.name == "dtype":
                kind = {"type": lambda name: ALIASES.get(name, name), "choices": (*DTYPES, AUTO)}
            parser.add_argument(flag(setting.name), default=setting.default, help=setting.metadata["help"], **kind)


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where dictionaries are, and how plain text is split into tokens."""
    add_load_options(parser, "data")
    add_load_options(parser.add_mutually_exclusive_group(), *TEXT_OPTIONS)


def add_to_option(parser: Any) -> None:
    """Add the option that chooses one of the target languages of a model."""
    parser.add_argument("--to", metavar="LANGUAGE", help="target language, for a model that translates into several")


def text_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that say how text is split into tokens, by name."""
    return {name: getattr(options, name) for name in TEXT_OPTIONS}


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
    add_load_options(parser, "fast", "dtype")
    add_device_option(parser)
    parser.add_argument(
        "--processes",
        type=int,
        help="number of processes that share the batches of the text; on GPUs each has one of its own (default: for a "
        "file on a CPU, one for each core and batch, up to 16, with one thread each; otherwise 1)",
    )
    search = parser.add_argument_group("search")
    for name, setting in SETTINGS.items():
        value, meaning = getattr(defaults or SearchSettings(), name), setting.metadata["help"]
        is_open = name in RECORDED and defaults is None
        own = "the model's own, else " if is_open else ""
        if isinstance(value, bool):
            search.add_argument(flag(name), action="store_true", help=meaning)
            continue
        shown = f"{meaning} (default: {own}{value:g})"
        search.add_argument(flag(name), type=type(value), default=None if is_open else value, help=shown)
    search.add_argument(
        "--nbest",
        type=int,
        help="print this number of hypotheses of each line, best first, as Moses does: "
        "NUMBER ||| TEXT ||| SCORE, where numbers count from 0 (default: the text of the best one)",
    )


def check_search_options(options: argparse.Namespace) -> None:
    """Refuse what no search takes, before a model is loaded."""
    SearchSettings(**given_settings(options))
    check_numbers(options, max_tokens=MAX_TOKENS_LIMITS, processes=_PROCESSES_LIMITS)
