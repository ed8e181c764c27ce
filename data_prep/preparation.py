"""What posnet-prepare is asked for: a dataset's text, languages and recipe, from the options of the command line."""

import argparse
from dataclasses import replace

from posnet_data_prep import command_line
from posnet_data_prep.datasets import (
    DATASETS,
    DEBIAN,
    FURTHER_TESTS,
    PARAGRAPHS,
    QUICKSTART,
    SETS,
    SMALL_TEXT,
    STUDY,
    WHEELS,
    Recipe,
    debian_indexes,
)
from posnet_data_prep.pipeline.vocabulary import Vocabulary
from posnet_data_prep.sources.archives import Download
from posnet_data_prep.sources.debian import debian, study
from posnet_data_prep.sources.download import Downloads
from posnet_data_prep.sources.own_files import own_pairs, own_text
from posnet_data_prep.sources.published import local_pairs, published
from posnet_data_prep.sources.quickstart import quickstart
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import ProgressReporter, shown
from posnet_fairseq.shared.stages import Stage, StageRunner
from posnet_fairseq.text.card import DatasetCard


class Preparation:
    """A dataset to prepare.

    Args:
        options: options of the command line.
        runner: does the stages.
        report: shows progress.

    Attributes:
        downloads: the folder of downloads.
        archives: files that must be downloaded.
        read: the stage that reads the text.
        languages: source and target, or the suffix of text of one language.
        recipe: how text becomes tokens.
        like: the vocabulary to use; None: one is learnt.
        card: card of the dataset, with what is known of its origin.
        notes: sentences for the user.
        published: number of pairs of each set in the literature, if the result should equal it.

    Raises:
        UsageError: the options contradict each other, or a file is missing.
    """

    like: Vocabulary | None = None
    read: Stage
    languages: tuple[str, ...]
    recipe: Recipe

    def __init__(self, options: argparse.Namespace, runner: StageRunner, report: ProgressReporter) -> None:
        self.archives: list[Download] = []
        self.notes: list[str] = []
        self.published: dict[str, int] = {}
        self.downloads = Downloads(options.downloads, getattr(options, "mirror", None), report)
        self.card = DatasetCard(dataset=options.dataset)
        if options.dataset in QUICKSTART:
            source, target, _ = QUICKSTART[options.dataset]
            self.languages, self.recipe, self.archives = (source, target), SMALL_TEXT, list(WHEELS)
            self.read = quickstart((source, target), self.downloads)
        elif options.dataset in DEBIAN:
            source, target, _ = DEBIAN[options.dataset]
            self.languages, self.recipe = (source, target), PARAGRAPHS
            self.archives = list(debian_indexes(self.languages))
            self.read = debian((source, target), self.downloads)
        elif options.dataset in STUDY:
            source, target, _ = STUDY[options.dataset]
            self.languages, self.recipe = (source, target), PARAGRAPHS
            self.archives = [*debian_indexes(self.languages), *WHEELS]
            self.read = study((source, target), self.downloads)
            self.card.test_sets = {"test": "descriptions of packages", FURTHER_TESTS[0]: "interface texts"}
        elif options.dataset in DATASETS:
            self._choose_published(options, runner)
        elif options.dataset == "corpus":
            with report.stage("check files"):
                self._choose_corpus(options)
        else:
            self.languages, self.recipe = ("txt",), replace(SMALL_TEXT, pieces=options.pieces)
            self.read = own_text(options.train, options.valid, options.test, "txt", options.shuffle)
        if self.archives:
            self.card.archives = {
                archive.name: {"digest": archive.digest, "licence": archive.licence} for archive in self.archives
            }

    def _choose_published(self, options: argparse.Namespace, runner: StageRunner) -> None:
        dataset = DATASETS[options.dataset]
        self.languages, self.archives = dataset.languages, [*dataset.archives]
        self.recipe = command_line.recipe(options, dataset.recipe, self.languages)
        self.read = published(runner, dataset, self.downloads)
        self.card.test_sets = dataset.test_sets
        if dataset.local and not local_pairs(dataset, self.downloads):
            self.notes.append(
                f"{self.downloads.folder / dataset.local} is not there, so {dataset.local.upper()}, which one must "
                "register for, is left out. The training set is smaller than the paper's."
            )
        elif self.recipe == dataset.recipe:
            self.published = dataset.published

    def _choose_corpus(self, options: argparse.Namespace) -> None:
        sets = {name: getattr(options, name) for name in SETS if getattr(options, name)}
        self.languages = command_line.languages(options, sets)
        self.recipe = command_line.recipe(options, Recipe(), self.languages)
        if options.like:
            self.like = Vocabulary.read(options.like, self.languages)
            self.recipe = replace(self.recipe, subwords=self.like.subwords)
        if ("valid" in sets) == (self.recipe.valid_every is not None):
            raise UsageError(
                "a validation set comes from one place: give --valid FILES, or --valid-every 23 to take every 23rd "
                "pair of the training text."
            )
        self.read = own_pairs(sets, self.languages)
        self.card.files_read = {name: list(map(shown, paths)) for name, paths in sets.items()}
