"""What posnet-prepare is asked for: a dataset's text, languages and recipe, from the options of the command line."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from posnet_data_prep import command_line
from posnet_data_prep.dataset import OWN_PAIRS, SETS, SMALL_TEXT, Recipe
from posnet_data_prep.datasets import DATASETS
from posnet_data_prep.pipeline.dataset_pipeline import Vocabulary
from posnet_data_prep.sources.archives import Archive
from posnet_data_prep.sources.download import Downloads
from posnet_data_prep.sources.own_files import own_pairs, own_text
from posnet_fairseq.shared.progress import shown
from posnet_fairseq.shared.stages import FolderStage
from posnet_fairseq.text.card import DatasetCard


@dataclass
class Preparation:
    """A dataset to prepare."""

    read: FolderStage  # the stage that reads the text
    languages: tuple[str, ...]  # source and target, or the suffix of text of one language
    recipe: Recipe
    card: DatasetCard  # with what is known of its origin
    like: Vocabulary | None = None  # to use, instead of learning one
    files: Sequence[Archive] = ()  # that must be downloaded
    note: str = ""  # a sentence for the user
    pairs: Mapping[str, int] = field(default_factory=dict)  # of each set, which the result should have


def preparation(options: argparse.Namespace, stages: Path, downloads: Downloads) -> Preparation:
    """Return what the options of a command line ask for, with stages in a folder."""
    card = DatasetCard(dataset=options.dataset)
    if own := _OWN.get(options.dataset):
        return own(options, stages, card)
    dataset = DATASETS[options.dataset]
    recipe = command_line.recipe(options, dataset.recipe, dataset.languages, dataset.recipe.valid_every is None)
    card.test_sets = dataset.test_sets
    card.archives = {file.name: {"digest": file.digest, "licence": file.license} for file in dataset.files}
    note = dataset.lacks(downloads)
    pairs = dataset.pairs if recipe == dataset.recipe and not note else {}
    read = dataset.read(stages, downloads)
    return Preparation(read, dataset.languages, recipe, card, files=dataset.files, note=note, pairs=pairs)


def _of_corpus(options: argparse.Namespace, stages: Path, card: DatasetCard) -> Preparation:
    sets = {name: getattr(options, name) for name in SETS if getattr(options, name)}
    languages = command_line.languages(options, sets)
    default = Recipe() if options.merges or options.tokenizer else OWN_PAIRS  # options of BPE ask for it
    recipe = command_line.recipe(options, default, languages, "valid" in sets)
    like = Vocabulary.read(options.like, languages) if options.like else None
    card.files_read = {name: list(map(shown, paths)) for name, paths in sets.items()}
    recipe = replace(recipe, subwords=like.subwords) if like else recipe
    return Preparation(own_pairs(stages, sets, languages), languages, recipe, card, like)


def _of_text(options: argparse.Namespace, stages: Path, card: DatasetCard) -> Preparation:
    files = [path for path in (options.train, options.valid, options.test) if path]
    read = own_text(stages, files, "txt", options.shuffle)
    recipe = replace(SMALL_TEXT, pieces=options.pieces, lossless=options.lossless)
    return Preparation(read, ("txt",), recipe, card)


_OWN = {"corpus": _of_corpus, "text": _of_text}  # files of the user's own
