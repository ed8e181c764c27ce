"""The stages from plain text to a dataset: tokenize, split, learn, apply, binarize."""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Any

from msgspec import structs

from posnet_data_prep.dataset import SETS, Recipe
from posnet_data_prep.pipeline.binarize import binarize
from posnet_data_prep.pipeline.lines import Columns, LineFunction, Rows, count_tokens, map_lines
from posnet_data_prep.pipeline.sets import (
    COPIES,
    DROPPED,
    REPEATED,
    Segmenter,
    counts_of,
    dropped_pairs,
    repeats,
    shared_with_training,
    split,
    usual_scripts,
)
from posnet_data_prep.pipeline.subwords import MODEL, count_words, learn_merges, learn_pieces, subword_files
from posnet_data_prep.sources.parts import MARKS
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import digest
from posnet_fairseq.shared.stages import PROGRESS, FolderStage
from posnet_fairseq.text.card import CARD, DatasetCard
from posnet_fairseq.text.dictionary import dictionary_file
from posnet_fairseq.text.languages import code_of
from posnet_fairseq.text.pipeline import companion
from posnet_fairseq.text.subwords import Merges, SentencePieces, Subwords
from posnet_fairseq.text.tokenizers import Tokenizer

DESTINATIONS = "train.sets"  # a line for each training pair: its set, or - if it is dropped

Counts = dict[str, Any]
Make = Callable[[Path, ProgressReporter], Counts]
Stages = tuple[FolderStage, ...]
# Settings of later versions: where they are not used, datasets made before need not be made again.
_LATER = ("lowercase_first", "rules", "normal_form", "symbols")


@dataclass(frozen=True)
class Vocabulary:
    """How the text of another dataset became tokens and numbers, for text of the same languages."""

    subwords: str  # "bpe" or "sentencepiece"
    tokenizers: list[Tokenizer]  # of source and target, as the dictionaries
    subword_files: dict[str, str]  # name of the file of each language
    merges: list[Path]  # these files
    dictionaries: list[Path]

    @classmethod
    def read(cls, folder: Path, languages: Sequence[str]) -> "Vocabulary":
        """Return the vocabulary of a dataset that posnet-prepare has made."""
        try:
            card = DatasetCard.read(folder)
        except FileNotFoundError:
            card = DatasetCard()
        files = card.bpe_codes or card.sentencepiece_model or ""
        names = files if isinstance(files, dict) else dict.fromkeys(languages, files)
        merges = [folder / name for name in dict.fromkeys(names.values())]
        dictionaries = [folder / dictionary_file(language) for language in languages]
        missing = [path.name for path in (*merges, *dictionaries) if not path.is_file()]
        problem = f"lacks {missing[0]}" if missing else ""
        if card.source_lang and (card.source_lang, card.target_lang) != tuple(languages):
            problem = f"is from {card.source_lang} to {card.target_lang}"
            problem += ". Give --tag-target, too" * bool(card.tags)
        elif not set(languages) <= card.words.keys() & names.keys():
            problem = "has no card that says how text became tokens"
        if problem:
            raise UsageError(
                f"--like {folder}: give the folder of a whole dataset of posnet-prepare from {' to '.join(languages)}. "
                f"This one {problem}."
            )
        for path in (*merges, *dictionaries):
            companion(folder / CARD, path.name, card)
        kind = "bpe" if card.bpe_codes else "sentencepiece"
        return cls(kind, [card.words[language] for language in languages], names, merges, dictionaries)


class DatasetPipeline:
    """The stages of a dataset after the one that reads its text, by a recipe or with the vocabulary of another dataset.

    The stage ``text`` has files SET.LANGUAGE and SET.bpe.LANGUAGE, the sets before they become binary; ``applied``
    likewise, before sentences are joined, if they are; ``goal`` is the last stage. `growth` is by what weights multiply
    the text.
    """

    def __init__(
        self,
        read: FolderStage,
        languages: Sequence[str],
        recipe: Recipe,
        processes: int,
        like: Vocabulary | None,
        growth: float,
    ) -> None:
        self.read, self.languages, self.recipe, self._processes, self._like = read, languages, recipe, processes, like
        self.tokenizers = like.tokenizers if like else [_tokenizer(language, recipe) for language in languages]
        if len(languages) == 2 and not like:  # of one language, all text is also what a model writes
            self.tokenizers[0] = structs.replace(self.tokenizers[0], normal_form=recipe.normal_form)
        self.subword_files = like.subword_files if like else subword_files(languages, recipe)
        self._lossless = recipe.lossless and recipe.subwords == "sentencepiece" and not like
        self._joined = len(set(self.subword_files.values())) == 1

        # share: bytes that it writes for each byte of plain text, about
        def stage(name: str, share: float, make: Make, settings: Counts, after: Stages, *packages: str) -> FolderStage:
            written = int(share * read.size)
            return FolderStage(read.folder.with_name(name), make, settings, after, written, packages=packages)

        words = {
            f"{of.language}: {name}": value
            for of in self.tokenizers
            for name, value in structs.asdict(of).items()
            if value or name not in _LATER
        }
        limits = {name: getattr(recipe, name) for name in ("min_length", "max_length", "max_ratio")}
        size: Counts = {"merges": recipe.merges} if recipe.subwords == "bpe" else {"pieces": recipe.pieces}
        if self._lossless:
            size["lossless"] = True
        package = "subword-nmt" if recipe.subwords == "bpe" else "sentencepiece"
        dictionaries: Counts = {"joined": self._joined}
        if like:
            size = {"files": list(map(digest, like.merges))}
            dictionaries = {"files": list(map(digest, like.dictionaries))}
        division = {"valid_every": recipe.valid_every} | (limits if recipe.clean == "words" else {})
        division |= {"drop_repeated": True} if recipe.drop_repeated else {}
        after_split = limits if recipe.clean == "pieces" else {}
        after_split |= {name: True for name in ("drop_copies", "drop_other_scripts") if getattr(recipe, name)}
        self._tokenized = stage("tokenise", 1.1, self._tokenize, words, (read,), "sacremoses", "jieba")
        texts = (read, self._tokenized)
        self.split = stage("split", 0.02, self._divide, division, texts)
        self.learned = stage("learn", 0.001, self._learn, {"subwords": recipe.subwords} | size, (self.split,), package)
        self.applied = stage(
            "apply", 2.3 * growth, self._apply, after_split, (*texts, self.split, self.learned), package
        )
        last = [self.applied]
        if recipe.join > 1:
            last += [stage("join", 2.4, self._join, {"join": recipe.join}, (self.applied,), package)]
        self.text = last[-1]
        self.goal = stage("binarise", 0.4 * growth, self._binarize, dictionaries, tuple(last))
        self.stages: list[FolderStage] = [*read.after, *texts, self.split, self.learned, *last, self.goal]

    def _paths(self, folder: Path, name: str) -> list[Path]:
        return [folder / f"{name}.{language}" for language in self.languages]

    def _sets(self) -> list[str]:
        def is_there(name: str) -> bool:
            return self._paths(self.read.folder, name)[0].exists()

        return [*filter(is_there, SETS), *takewhile(is_there, map("test{}".format, count(1)))]

    def _marks(self, name: str) -> list[Path]:
        """Return the files with tags and weights of the lines of a set, if it has them."""
        return [path for path in (self.read.folder / f"{name}.{kind}" for kind in MARKS) if path.exists()]

    def subwords(self, folder: Path) -> list[Subwords]:
        """Return the subwords of each language, from the files in a folder."""
        found: dict[str, Subwords] = {}
        for name in set(self.subword_files.values()):
            is_bpe, path = self.recipe.subwords == "bpe", folder / name
            found[name] = Merges(path, self.tokenizers[0].symbols) if is_bpe else SentencePieces(path)
        return [found[self.subword_files[language]] for language in self.languages]

    def _lines(self, name: str) -> int:
        return int(self.read.counts[name]["lines"])

    def _map(
        self,
        what: str,
        name: str,
        function: LineFunction,
        sources: list[Path],
        targets: list[Path],
        report: ProgressReporter,
        lines: int | None = None,
    ) -> Counts:
        """Apply a function to the lines of a set's files, and write its results to other files; return its counts.

        `lines` is their number. Default: that of the lines that were read.
        """
        note = targets[0].with_name(f"{name}{PROGRESS}")
        with report.stage(f"{what} {name}", total=self._lines(name) if lines is None else lines) as bar:
            return dict(map_lines(function, sources, targets, self._processes, bar, note))

    def _tokenize(self, folder: Path, report: ProgressReporter) -> Counts:
        sizes = {name: self._lines(name) for name in self._sets()}
        if self.recipe.valid_every:
            sizes["valid"] = sizes["train"] // self.recipe.valid_every
        for name in sizes:  # refused before the work
            self._refuse_empty(name, sizes[name], sizes)
        counts: Counts = {}
        for name in self._sets():
            sources, targets = self._paths(self.read.folder, name), self._paths(folder, name)
            counts[name] = self._map("tokenize", name, self._splitter_of(name), sources, targets, report)
        return counts

    def _splitter_of(self, name: str) -> LineFunction:
        """Return the function that tokenizes lines of each language of a set."""
        if name.startswith("test"):
            return _splitter(self.tokenizers)
        # Only test sets are treated as text to be translated is; the training text stays as it is.
        return _splitter([structs.replace(tokenizer, straighten_apostrophes=False) for tokenizer in self.tokenizers])

    def _divide(self, folder: Path, report: ProgressReporter) -> Counts:
        with report.stage("split", total=self._lines("train")) as bar:
            texts = [*self._paths(self._tokenized.folder, "train"), *self._marks("train")[:1]]
            return split(texts, folder / DESTINATIONS, self.recipe, bar)

    def _learn(self, folder: Path, report: ProgressReporter) -> Counts:
        if self._like:
            for path in self._like.merges:
                shutil.copy2(path, folder / path.name)
            return {}
        destinations, texts = self.split.folder / DESTINATIONS, self._paths(self._tokenized.folder, "train")
        if self.recipe.subwords == "sentencepiece":
            with report.stage("learn pieces") as bar:
                lines = self.split.counts["train"]
                path, pieces = folder / MODEL, self.recipe.pieces
                learned = learn_pieces(destinations, texts, pieces, path, lines, self._lossless, self.recipe.symbols)
                bar.advance(learned["lines"])
            return learned
        counts: Counts = {}
        for index, name in enumerate(dict.fromkeys(self.subword_files.values())):
            with report.stage("count words") as bar:
                learn_on = texts if self._joined else [texts[index]]
                words, different = count_words(destinations, learn_on, self._processes, bar)
            words = {word: count for word, count in words.items() if word not in self.recipe.symbols}
            if len(words) + len(self.recipe.symbols) < different:
                report.say(f"BPE is learned from the {len(words):,} most frequent of {different:,} words")
            merges = self.recipe.merges[index]
            with report.stage("learn BPE", "merges", merges) as bar:
                learned_merges = learn_merges(words, merges, folder / name, bar)
            counts[name] = {"merges": learned_merges, "words": different, "words used": len(words)}
        return counts

    def _apply(self, folder: Path, report: ProgressReporter) -> Counts:
        divided = ["train", "valid"] if self.recipe.valid_every else ["train"]
        texts = (self.read.folder, self._tokenized.folder)
        sources = {
            name: [path for of in texts for path in self._paths(of, name)] + self._marks(name) for name in self._sets()
        }
        tags, lines = self._marks("train")[:1], self._lines("train")
        scripts = [usual_scripts(path, lines, *tags) for path in sources["train"][: len(self.languages)]]
        segmenter = Segmenter(self.languages, self.subwords(self.learned.folder), scripts, self.recipe, divided)

        def targets_of(name: str) -> list[Path]:
            return self._paths(folder, name) + self._paths(folder, f"{name}.bpe")

        of_training = [self.split.folder / DESTINATIONS, *sources.pop("train")]
        targets = [path for name in divided for path in targets_of(name)]
        found = self._map("apply", "train", segmenter.segment_training_text, of_training, targets, report)
        counts = {name: counts_of(name, found) for name in divided}
        for name, paths in sources.items():
            counts[name] = self._map("apply", name, segmenter.segment, paths, targets_of(name), report)
        if repeated := int(repeats(self._paths(folder, "train.bpe")).sum()):  # as --drop-repeated compares them
            counts["train"][REPEATED] = repeated - counts["train"].get(COPIES, 0)
        made = {name: self._paths(folder, name) for name in counts}
        for name, shared in shared_with_training(made, either_way=bool(tags)).items():
            counts[name] |= shared
        for name in counts:
            dropped = dropped_pairs(self.split.counts, counts[name])
            why_dropped = {f"{DROPPED}{why}": of for why, of in dropped.items()}
            self._refuse_empty(name, counts[name].get("lines", 0), why_dropped)
        for name in set(self.subword_files.values()):
            shutil.copy2(self.learned.folder / name, folder / name)
        for path in self.read.folder.glob("*.documents"):
            if counts[path.stem]["lines"] == self._lines(path.stem):  # else the lines have other numbers
                shutil.copy2(path, folder / path.name)
        return counts

    @property
    def joined_tests(self) -> dict[str, str]:
        """The name of the joined copy of each test set; fairseq numbers test sets."""
        tests = [name for name in self.applied.counts if name.startswith("test")]
        return {name: f"test{number}" for number, name in enumerate(tests, start=len(tests))}

    def _join(self, folder: Path, report: ProgressReporter) -> Counts:
        """Write the sets with joined sentences, tokenized as the long lines that they are, and single test sets."""
        copied, most = self.joined_tests, self.recipe.join
        counts: Counts = {}
        subwords = self.subwords(self.applied.folder)
        for name in set(self.subword_files.values()):
            shutil.copy2(self.applied.folder / name, folder / name)
        for name in copied:
            for path in (*self._paths(self.applied.folder, name), *self._paths(self.applied.folder, f"{name}.bpe")):
                shutil.copy2(path, folder / path.name)
            if (documents := self.applied.folder / f"{name}.documents").exists():
                shutil.copy2(documents, folder / documents.name)
        joined = {name: copied.get(name, name) for name in self.applied.counts}
        for name, target in joined.items():
            long_texts = self._paths(folder, target)
            for path, long_text in zip(self._paths(self.applied.folder, name), long_texts, strict=True):
                with open(path, encoding="utf-8", newline="\n") as text:
                    write_lines(long_text, joined_lines(text, most, drawn=name not in copied))
            split_words = self._splitter_of(target)

            def split_long(rows: Rows, split_words: LineFunction = split_words) -> tuple[Columns, Counter[str]]:
                words, _ = split_words(rows)
                columns = [list(map(pieces.split, side)) for pieces, side in zip(subwords, words, strict=True)]
                return columns, count_tokens(self.languages, columns)

            tokens, lines = self._paths(folder, f"{target}.bpe"), self.applied.counts[name]["lines"]
            counts[target] = self._map("join", target, split_long, long_texts, tokens, report, lines)
        single = {name: self.applied.counts[name] for name in copied}
        return {name: counts[name] for name in counts if name not in copied.values()} | single | counts

    def _binarize(self, folder: Path, report: ProgressReporter) -> Counts:
        counts = self.text.counts
        tokens = sum(of_set.get(name, 0) + of_set["lines"] for of_set in counts.values() for name in self.languages)
        ending, languages = ("", self.languages) if len(self.languages) == 2 else (f".{self.languages[0]}", ())
        prefixes = {name: self.text.folder / f"{name}.bpe{ending}" for name in counts}
        with report.stage("binarize", "tokens", tokens) as bar:
            given = self._like.dictionaries if self._like else ()
            symbols = SentencePieces(self.text.folder / MODEL).pieces if self._lossless else self.recipe.symbols
            training = self.applied.folder / prefixes["train"].name
            binarize(folder, prefixes, languages, self._joined, bar, given, symbols, training)
        return {}

    def _refuse_empty(self, name: str, lines: int, counts: Counts) -> None:
        """Refuse a set without lines; the counts say why."""
        if not lines:
            reasons = ", ".join(f"{count:,} {what}" for what, count in counts.items())
            checked = ["--min-length, --max-length and --max-ratio"] * any(what.startswith(DROPPED) for what in counts)
            checked += ["--valid-every"] * bool(self.recipe.valid_every)
            more = f", and {' and '.join(checked)}" if checked else ""
            raise UsageError(f"no sentences are left in the {name} set ({reasons}). Check the text{more}.")


def joined_lines(lines: Iterable[str], most: int, drawn: bool) -> Iterator[str]:
    """Yield neighboring lines joined by spaces: `most` to a line, or, drawn by a fixed seed, 1 to `most`."""
    rng, rest = random.Random(1), iter(lines)
    while group := list(islice(rest, rng.randint(1, most) if drawn else most)):
        yield " ".join(filter(None, (line.removesuffix("\n") for line in group)))


def _splitter(tokenizers: Sequence[Tokenizer]) -> LineFunction:
    """Return the function that tokenizes lines of each language."""
    for tokenizer in tokenizers:
        tokenizer.split("")  # loads its data before processes are started, which then share it

    def split_words(rows: Rows) -> tuple[Columns, Counter[str]]:
        sides = zip(tokenizers, zip(*rows, strict=True), strict=True)
        columns = [list(map(tokenizer.split, lines)) for tokenizer, lines in sides]
        return columns, count_tokens([tokenizer.language for tokenizer in tokenizers], columns)

    return split_words


def _tokenizer(language: str, recipe: Recipe) -> Tokenizer:
    code = code_of(language)
    by_words = recipe.tokenizer if code == "zh" else "moses"
    tokenizer = by_words if recipe.subwords == "bpe" else "unchanged" if recipe.lossless else "none"
    return Tokenizer(
        language,
        tokenizer,
        normalise=recipe.normalise and tokenizer == "moses",
        split_hyphens=recipe.split_hyphens and tokenizer == "moses",
        straighten_apostrophes=recipe.straighten_apostrophes,
        lowercase=recipe.lowercase,
        lowercase_first=recipe.lowercase_first,
        rules=code if tokenizer == "moses" and code != language else "",
        symbols=recipe.symbols,
    )
