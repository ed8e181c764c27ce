"""Options about plain text that several commands have."""

import argparse
from typing import Any

from posnet_fairseq.shared.files import path_text


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where dictionaries are, and how plain text is split into tokens."""
    parser.add_argument(
        "--data", type=path_text, help="directory with dictionaries (default: the one the model was trained on)"
    )
    text = parser.add_mutually_exclusive_group()
    text.add_argument(
        "--sentencepiece-model", type=path_text, help="split text by this model (default: as the data's card says)"
    )
    text.add_argument("--bpe-codes", type=path_text, help="split Moses words by these codes")
    text.add_argument("--pretokenized", action="store_true", help="the text is split into tokens already; leave it so")


def text_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that say how text is split into tokens, by name."""
    return {name: getattr(options, name) for name in ("pretokenized", "bpe_codes", "sentencepiece_model")}
