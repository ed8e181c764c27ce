"""The stages from plain text to a dataset: tokenise, split, learn, apply, binarise."""

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msgspec import structs

from posnet_data_prep.datasets import FURTHER_TESTS, SETS, Recipe
from posnet_data_prep.pipeline.apply import IN_TRAINING, Segmenter, count_repeated, counts_of, refuse_empty
from posnet_data_prep.pipeline.binarise import binarise
from posnet_data_prep.pipeline.clean import Limits, dropped_pairs
from posnet_data_prep.pipeline.lines import LineFunction, map_lines
from posnet_data_prep.pipeline.notes import notes_on_subwords, notes_on_text, notes_on_tokens
from posnet_data_prep.pipeline.split import split
from posnet_data_prep.pipeline.subwords import MODEL, count_words, learn_merges, learn_pieces, subword_files
from posnet_data_prep.pipeline.tokenise import tokenise, tokenizer_of
from posnet_data_prep.pipeline.vocabulary import Vocabulary
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.stages import PROGRESS, Stage, StageRunner
from posnet_fairseq.text.card import DatasetCard
from posnet_fairseq.text.subwords import Merges, SentencePieces, Subwords

DESTINATIONS = "train.sets"  # a line for each training pair: its set, or - if it is dropped

Counts = dict[str, Any]


class DatasetPipeline:
    """The stages of a dataset after the one that reads its text.

    Args:
        runner: does the stages.
        languages: source and target, two-letter codes; for text of one language, the suffix of its files.
        recipe: settings of the stages.
        read: the stage that writes plain text to files SET.LANGUAGE, with a ``lines`` count for each set.
        processes: number of processes.
        like: the vocabulary to use, instead of learning one.

    Attributes:
        text: the stage whose files SET.LANGUAGE and SET.bpe.LANGUAGE are the sets before they become binary.
        goal: the last stage.
        stages: all stages, in order.
    """

    def __init__(
        self,
        runner: StageRunner,
        languages: Sequence[str],
        recipe: Recipe,
        read: Stage,
        processes: int,
        like: Vocabulary | None = None,
    ) -> None:
        self._runner, self._languages, self._recipe, self._processes = runner, languages, recipe, processes
        self._like = like
        self._tokenizers = like.tokenizers if like else [tokenizer_of(language, recipe) for language in languages]
        self._subword_files = like.subword_files if like else subword_files(languages, recipe)
        self._joined = len(set(self._subword_files.values())) == 1
        self._limits = Limits(recipe.min_length, recipe.max_length, recipe.max_ratio)

        def stage(
            name: str,
            make: Callable[[Path, ProgressReporter], Counts],
            options: dict[str, Any],
            after: tuple[Stage, ...],
            share: float,
            packages: tuple[str, ...] = (),
        ) -> Stage:
            """A stage that writes `share` bytes for each byte of plain text, about."""
            return Stage(name, make, options, after, int(share * read.size), packages=packages)

        words = {
            f"{tokenizer.language}: {name}": value
            for tokenizer in self._tokenizers
            for name, value in structs.asdict(tokenizer).items()
        }
        limits = asdict(self._limits)
        division = {"valid_every": recipe.valid_every} | (limits if recipe.clean == "words" else {})
        if recipe.subwords == "bpe":
            size: dict[str, Any] = {"merges": recipe.merges}
            package = ("subword-nmt",)
        else:
            size, package = {"pieces": recipe.pieces}, ("sentencepiece",)
        dictionaries: dict[str, Any] = {"joined": self._joined}
        if like:
            size = {"files": like.digests(like.subword_files.values())}
            dictionaries = {"files": like.digests(like.dictionary_files)}
        self._read = read
        self._tokenised = stage("tokenise", self._tokenise, words, (read,), 1.1, ("sacremoses", "jieba"))
        texts = (read, self._tokenised)
        self._split = stage("split", self._divide, division, texts, 0.02)
        self._learnt = stage("learn", self._learn, {"subwords": recipe.subwords} | size, (self._split,), 0.001, package)
        after_split = limits if recipe.clean == "pieces" else {}
        self.text = stage("apply", self._apply, after_split, (*texts, self._split, self._learnt), 2.3, package)
        fairseq = ("ve-fairseq", "fairseq-fixed")
        self.goal = stage("binarise", self._binarise, dictionaries, (self.text,), 0.4, fairseq)
        self.stages: list[Stage] = [*read.after, *texts, self._split, self._learnt, self.text, self.goal]

    def describe(self, card: DatasetCard) -> None:
        """Enter into a card what it says about the text, when all stages are done."""
        if len(self._languages) == 2:
            card.source_lang, card.target_lang = self._languages
            card.words = {tokenizer.language: tokenizer for tokenizer in self._tokenizers}
        if self._recipe.subwords == "sentencepiece":
            card.sentencepiece_model = self._subword_files[self._languages[0]]
        else:
            card.bpe_codes = self._subword_files
        counts = self._counts(self.text)
        card.sentences = {name: of_set["lines"] for name, of_set in counts.items()}
        card.notes = list(notes_on_text(counts, "pairs" if len(self._languages) == 2 else "lines"))
        # The folders of earlier stages may have been removed after the last stage was done.
        read = (self._runner.record(self._read) or {"counts": {}})["counts"]
        card.notes += notes_on_tokens({name: read.get(name, {}) for name in counts})
        for name, digest in read.get("digests", {}).items():
            card.archives = {**(card.archives or {}), name: {**(card.archives or {}).get(name, {}), "digest": digest}}
        divided = self._runner.record(self._split)
        if divided is not None:
            card.dropped = dropped_pairs(divided["counts"], *counts.values())
        learnt = self._runner.record(self._learnt)
        if learnt is not None and not self._like:
            card.notes = [*notes_on_subwords(learnt["counts"], self._recipe), *card.notes]

    def _paths(self, folder: Path, name: str) -> list[Path]:
        return [folder / f"{name}.{language}" for language in self._languages]

    def _files(self, stage: Stage, name: str) -> list[Path]:
        """Files of a set that a stage has written."""
        return self._paths(self._runner.of(stage), name)

    def _counts(self, stage: Stage) -> Counts:
        """Counts of a stage that is done."""
        record = self._runner.record(stage)
        assert record is not None
        counts: Counts = record["counts"]
        return counts

    def _sets(self) -> list[str]:
        """Sets that the text was read from."""
        return [name for name in (*SETS, *FURTHER_TESTS) if self._files(self._read, name)[0].exists()]

    def _lines(self, name: str) -> int:
        """Number of lines of a set that was read."""
        return int(self._counts(self._read)[name]["lines"])

    def _tokenise(self, folder: Path, report: ProgressReporter) -> Counts:
        every, pairs = self._recipe.valid_every, self._lines("train")
        if every and pairs < every:  # refused before the work
            raise UsageError(
                f"--valid-every {every}: the training text has {pairs:,} pairs, so no sentences are left in the valid "
                "set. Give less."
            )
        # Only the test set is treated as text to be translated is; the training text stays as it is.
        in_training = [structs.replace(tokenizer, straighten_apostrophes=False) for tokenizer in self._tokenizers]
        counts: Counts = {}
        for name in self._sets():
            tokenizers = self._tokenizers if name.startswith("test") else in_training
            sources, targets = self._files(self._read, name), self._paths(folder, name)
            with report.stage(f"tokenise {name}", total=self._lines(name)) as bar:
                note = folder / f"{name}{PROGRESS}"
                counts[name] = tokenise(tokenizers, sources, targets, self._processes, bar, note)
        return counts

    def _divide(self, folder: Path, report: ProgressReporter) -> Counts:
        texts = self._files(self._tokenised, "train")
        with report.stage("split", total=self._lines("train")) as bar:
            recipe = self._recipe
            return split(texts, folder / DESTINATIONS, recipe.valid_every, recipe.clean, self._limits, bar)

    def _learn(self, folder: Path, report: ProgressReporter) -> Counts:
        if self._like:
            self._like.copy_subwords(folder)
            return {}
        destinations, texts = self._runner.of(self._split) / DESTINATIONS, self._files(self._tokenised, "train")
        if self._recipe.subwords == "sentencepiece":
            with report.stage("learn pieces") as bar:
                lines = self._counts(self._split)["train"]
                learnt = learn_pieces(destinations, texts, self._recipe.pieces, folder / MODEL, lines)
                bar.advance(learnt["lines"])
            return learnt
        counts: Counts = {}
        for index, name in enumerate(dict.fromkeys(self._subword_files.values())):
            with report.stage("count words") as bar:
                learn_on = texts if self._joined else [texts[index]]
                words, different = count_words(destinations, learn_on, self._processes, bar)
            if len(words) < different:
                report.say(f"BPE is learnt from the {len(words):,} most frequent of {different:,} words")
            merges = self._recipe.merges[index]
            with report.stage("learn BPE", "merges", merges) as bar:
                learnt_merges = learn_merges(words, merges, folder / name, bar)
            counts[name] = {"merges": learnt_merges, "words": different, "words used": len(words)}
        return counts

    def _apply(self, folder: Path, report: ProgressReporter) -> Counts:
        divided = ["train", "valid"] if self._recipe.valid_every else ["train"]
        limits = self._limits if self._recipe.clean == "pieces" else None
        segmenter = Segmenter(self._languages, self._load_subwords(), limits, divided)

        def run(name: str, function: LineFunction, sources: list[Path], targets: list[Path]) -> Counter[str]:
            with report.stage(f"apply {name}", total=self._lines(name)) as bar:
                return map_lines(function, sources, targets, self._processes, bar, folder / f"{name}{PROGRESS}")

        def targets_of(name: str) -> list[Path]:
            return self._paths(folder, name) + self._paths(folder, f"{name}.bpe")

        sources = {name: self._files(self._read, name) + self._files(self._tokenised, name) for name in self._sets()}
        of_training = [self._runner.of(self._split) / DESTINATIONS, *sources.pop("train")]
        targets = [path for name in divided for path in targets_of(name)]
        found = run("train", segmenter.segment_training_text, of_training, targets)
        counts = {name: counts_of(name, found) for name in divided}
        for name, paths in sources.items():
            counts[name] = dict(run(name, segmenter.segment, paths, targets_of(name)))
        for name, repeated in count_repeated({name: self._paths(folder, name) for name in counts}).items():
            counts[name][IN_TRAINING] = repeated
        for name, of_set in counts.items():
            refuse_empty(name, of_set, self._counts(self._split))
        borders = self._runner.of(self._read).glob("*.documents")
        for path in [*(self._runner.of(self._learnt) / name for name in set(self._subword_files.values())), *borders]:
            shutil.copy2(path, folder / path.name)
        return counts

    def _load_subwords(self) -> list[Subwords]:
        """Subwords of each language; a file that both share is loaded once."""
        kind = SentencePieces if self._recipe.subwords == "sentencepiece" else Merges
        folder = self._runner.of(self._learnt)
        loaded = {name: kind(folder / name) for name in set(self._subword_files.values())}
        return [loaded[self._subword_files[language]] for language in self._languages]

    def _binarise(self, folder: Path, report: ProgressReporter) -> Counts:
        counts = self._counts(self.text)
        tokens = sum(of_set.get(name, 0) + of_set["lines"] for of_set in counts.values() for name in self._languages)
        ending, languages = ("", self._languages) if len(self._languages) == 2 else (f".{self._languages[0]}", ())
        prefixes = {name: self._runner.of(self.text) / f"{name}.bpe{ending}" for name in counts}
        with report.stage("binarise", "bytes", 2 * tokens) as bar:
            given = self._like.dictionaries if self._like else ()
            binarise(folder, prefixes, languages, self._joined, self._processes, bar, given)
        return {}
