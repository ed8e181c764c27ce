"""Options about plain text that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import path_text
from posnet_fairseq.text.card import CARD, DatasetCard
from posnet_fairseq.text.pipeline import TextPipeline, choose_pipeline

if TYPE_CHECKING:
    from posnet_fairseq.text.dictionary import Vocabulary


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


def pipeline(options: argparse.Namespace, vocabulary: Vocabulary, folder: Path) -> TextPipeline:
    """The pipeline that :func:`add_text_options` were given for.

    Args:
        options: of the command line.
        vocabulary: of the model.
        folder: of its data.
    """
    return choose_pipeline(folder, vocabulary.languages, **text_options(options))


def text_options(options: argparse.Namespace) -> dict[str, Any]:
    """The options that say how text is split into tokens, by name."""
    return {name: getattr(options, name) for name in ("pretokenized", "bpe_codes", "sentencepiece_model")}


def files_of_models(paths: Iterable[str | Path]) -> Iterator[Path]:
    """Yield the paths of checkpoints, and of the files of model folders that a model is read from."""
    from posnet_fairseq.inference.model_folder import CONFIG, WEIGHTS  # imports torch

    for path in map(Path, paths):
        yield from (path / CONFIG, path / WEIGHTS, *files_of_data(path)) if path.is_dir() else (path,)


def files_of_data(folder: str | Path) -> list[Path]:
    """Paths of a dataset's files: dictionaries, binary sets, the card and the files that it names.

    Args:
        folder: of the dataset.
    """
    folder = Path(folder)
    try:
        named = list(DatasetCard.read(folder).files)
    except (OSError, UsageError):  # data of fairseq-preprocess have no card
        named = []
    found = [path for pattern in ("dict*.txt", "*.idx", "*.bin", CARD) for path in folder.glob(pattern)]
    return [*found, *(folder / name for name in named)]
