"""The stages from plain text to a dataset: words, cleaning, split, subwords, fairseq's binary form."""

import shutil
import unicodedata
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, replace

from posnet_data_prep.pipeline.binarise import SETS, binarise
from posnet_data_prep.pipeline.clean import Limits, has_monster
from posnet_data_prep.pipeline.lines import map_lines
from posnet_data_prep.pipeline.subwords import count_words, learn_merges, learn_pieces
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.stages import PROGRESS, Stage
from posnet_fairseq.text.subwords import Merges, SentencePieces
from posnet_fairseq.text.tokenizers import Tokenizer

MODEL = "sentencepiece.model"
# What is counted of a set besides lines and tokens.
NOT_NFC, IN_TRAINING = "lines not in NFC", "lines also in training"
DESTINATIONS = "train.sets"  # a line for each training pair: train, valid or -


class Making:
    """The stages of a dataset behind the one that reads it.

    Args:
        workshop: :class:`posnet_fairseq.shared.stages.StageRunner`.
        languages: of source and target, two-letter codes; of a text for language models, the one ending of its files.
        recipe: :class:`posnet_data_prep.datasets.Recipe`.
        read: the stage that makes files SET.LANGUAGE of plain text, whose lines belong together. Its counts are of
            each set, ``{"lines": ...}`` among them.
        processes: how many work at once.

    Attributes:
        goal: the last stage.
        text: the stage whose files SET.LANGUAGE and SET.bpe.LANGUAGE are the sets before they become binary.
    """

    def __init__(self, workshop, languages, recipe, read, processes):
        self._workshop, self._languages, self._recipe, self._processes = workshop, languages, recipe, processes
        self._words = {language: words_of(language, recipe) for language in languages}
        self._files = codes_of(languages, recipe)
        # Only what is about to be translated is written as a test set is; the training text stays as it is.
        self._training_words = {
            language: replace(words, straighten_apostrophes=False) for language, words in self._words.items()
        }
        options = asdict(recipe)
        limits = {name: options[name] for name in ("min_length", "max_length", "max_ratio")}
        before_split = limits if recipe.clean == "words" else {}
        behind_split = limits if recipe.clean == "pieces" else {}
        split = {"valid_every": recipe.valid_every} | before_split
        how_many = "merges" if recipe.subwords == "bpe" else "pieces"
        subwords = {"subwords": recipe.subwords, how_many: options[how_many]}
        words = {
            f"{language}: {name}": value
            for language, words in self._words.items()
            for name, value in asdict(words).items()
        }
        self._joined = len(set(self._files.values())) == 1

        self._read = read
        texts = (read, self._make("tokenise", self._tokenise, words, (read,), 1.1, ("sacremoses", "jieba")))
        self._tokenised = texts[1]
        self._split = self._make("split", self._divide, split, texts, 0.02)
        package = ("subword-nmt",) if recipe.subwords == "bpe" else ("sentencepiece",)
        self._learnt = self._make("learn", self._learn, subwords, (self._split,), 0.001, package)
        behind = (*texts, self._split, self._learnt)
        self.text = self._make("apply", self._apply, behind_split, behind, 2.3, package)
        joined, packages = {"joined": self._joined}, ("ve-fairseq", "fairseq-fixed")
        self.goal = self._make("binarise", self._binarise, joined, (self.text,), 0.4, packages)
        self._limits = Limits(**limits)

    def _make(self, name, make, options, after, share, packages=()):
        """A stage that writes so much for each byte of plain text."""
        return Stage(name, make, options, after, int(share * self._read.size), packages=packages)

    @property
    def stages(self):
        """All of them, in order."""
        return [*self._read.after, self._read, self._tokenised, self._split, self._learnt, self.text, self.goal]

    def card(self):
        """What the dataset's card says about its text."""
        card = {}
        if len(self._languages) == 2:
            card["source_lang"], card["target_lang"] = self._languages
            card["words"] = {language: asdict(words) for language, words in self._words.items()}
            for options in card["words"].values():
                del options["language"]
        if self._recipe.subwords == "sentencepiece":
            return card | {"sentencepiece_model": MODEL}
        return card | {"bpe_codes": self._files}

    def _paths(self, folder, name, middle=""):
        return [folder / f"{name}{middle}.{language}" for language in self._languages]

    def _made(self, stage, name):
        """The files of a set that a stage has made."""
        return self._paths(self._workshop.of(stage), name)

    def _sets(self):
        return [name for name in SETS if self._made(self._read, name)[0].exists()]

    def _lines(self, name):
        return self._workshop.record(self._read)["counts"][name]["lines"]

    def _count(self, columns):
        """Lines, and tokens of each language."""
        tokens = (sum(line.count(" ") + 1 for line in column if line) for column in columns)
        return Counter(lines=len(columns[0])) + Counter(dict(zip(self._languages, tokens, strict=True)))

    def notes(self):
        """What whoever uses the dataset should know of it: list of sentences."""
        return [*self._notes_of_subwords(), *self._notes_of_text()]

    def _notes_of_subwords(self):
        record = self._workshop.record(self._learnt)
        if record is None:  # its folder was removed, and what was made of it is there
            return
        counts, merges = record["counts"], self._recipe.merges
        if self._recipe.subwords == "sentencepiece":
            found = [(self._recipe.pieces, counts["pieces"], "pieces")]
        else:
            found = [(asked, of["merges"], "merges") for asked, of in zip(merges, counts.values(), strict=True)]
        for asked, learnt, what in found:
            if learnt < asked:
                yield f"only {learnt:,} of {asked:,} {what} could be learnt from the training text"

    def _notes_of_text(self):
        unit = "pairs" if len(self._languages) == 2 else "lines"
        counts = self._workshop.record(self.text)["counts"]
        for name, of_set in counts.items():
            if repeated := of_set.get(IN_TRAINING):
                yield f"{repeated:,} of {of_set['lines']:,} {unit} of the {name} set are in the training set, too"
        odd = [f"{of_set[NOT_NFC]:,} {name}" for name, of_set in counts.items() if of_set.get(NOT_NFC)]
        if odd:
            yield (
                f"{unit} that are not in Unicode's normal form NFC, and stay so: {', '.join(odd)}. Where other text "
                "is, the same letters are other tokens to a model"
            )

    def _tokenise(self, folder, report):
        every, pairs = self._recipe.valid_every, self._lines("train")
        if every and pairs < every:  # said now, not when all of them have been gone through
            raise UsageError(
                f"--valid-every {every}: the training text has {pairs:,} pairs, so no sentences are left in the valid "
                "set. Give less."
            )
        counts = {}
        for name in self._sets():
            words = self._words if name == "test" else self._training_words
            splitters = [words[language].split for language in self._languages]
            for split in splitters:
                split("")  # what it must load is loaded once, before processes are started

            def tokenise(rows, splitters=splitters):
                columns = [
                    list(map(split, column)) for split, column in zip(splitters, zip(*rows, strict=True), strict=True)
                ]
                return columns, self._count(columns)

            with report.stage(f"tokenise {name}", total=self._lines(name)) as bar:
                paths = self._made(self._read, name), self._paths(folder, name)
                counts[name] = dict(map_lines(tokenise, *paths, self._processes, bar, folder / f"{name}{PROGRESS}"))
        return counts

    def _divide(self, folder, report):
        """Say of every training pair where it goes; every so many-th, of the clean ones if it is cleaned by words, is
        for validation.
        """
        every, clean = self._recipe.valid_every, self._recipe.clean
        counts, number = Counter(read=0, train=0), 0
        with ExitStack() as stack:
            bar = stack.enter_context(report.stage("split", total=self._lines("train")))
            readers = [stack.enter_context(open(path, "rb")) for path in self._made(self._tokenised, "train")]
            file = stack.enter_context(open(folder / DESTINATIONS, "w", encoding="utf-8"))
            for lines in zip(*readers, strict=True):
                counts["read"] += 1
                if counts["read"] % 10_000 == 0:
                    bar.advance(10_000)
                texts = [line.decode() for line in lines]
                if clean == "words":
                    fault = self._limits.fault(*texts)
                else:
                    fault = "word" if clean and has_monster(*texts) else None
                number += not (fault and clean == "words")
                name = f"dropped, {fault}" if fault else "valid" if every and number % every == 0 else "train"
                counts[name] += 1
                file.write("-\n" if fault else f"{name}\n")
            bar.move_to(counts["read"])
        return dict(counts)

    def _learn(self, folder, report):
        destinations, texts = self._workshop.of(self._split) / DESTINATIONS, self._made(self._tokenised, "train")
        if self._recipe.subwords == "sentencepiece":
            with report.stage("learn pieces") as bar:
                lines = self._workshop.record(self._split)["counts"]["train"]
                counts = learn_pieces(destinations, texts, self._recipe.pieces, folder / MODEL, lines)
                bar.advance(counts["lines"])
            return counts
        counts = {}
        merges = self._recipe.merges
        for index, name in enumerate(dict.fromkeys(self._files.values())):
            with report.stage("count words") as bar:
                learn_on = texts if self._joined else [texts[index]]
                words, different = count_words(destinations, learn_on, self._processes, bar)
            if len(words) < different:
                report.say(f"BPE is learnt from the {len(words):,} most frequent of {different:,} words")
            with report.stage("learn BPE", "merges", merges[index]) as bar:
                learnt = learn_merges(words, merges[index], folder / name, bar)
            counts[name] = {"merges": learnt, "words": different, "words used": len(words)}
        return counts

    def _apply(self, folder, report):
        kind = SentencePieces if self._recipe.subwords == "sentencepiece" else Merges
        pieces = {name: kind(self._workshop.of(self._learnt) / name) for name in set(self._files.values())}
        splitters = [pieces[self._files[language]].split for language in self._languages]

        def columns_of(rows, limits):
            """Plain text and pieces of rows of plain text and words, and what there is of them."""
            kept, dropped, width = [], Counter(), len(splitters)
            for row in rows:
                tokens = [split(line) for split, line in zip(splitters, row[width:], strict=True)]
                fault = limits and limits.fault(*tokens)
                if fault:
                    dropped[f"dropped, {fault}"] += 1
                else:
                    kept.append((*row[:width], *tokens))
            columns = list(map(list, zip(*kept, strict=True))) or [[]] * 2 * width
            odd = sum(not all(unicodedata.is_normalized("NFC", text) for text in row[:width]) for row in kept)
            return columns, self._count(columns[width:]) + dropped + Counter({NOT_NFC: odd})

        def run(name, function, sources, targets):
            with report.stage(f"apply {name}", total=self._lines(name)) as bar:
                return map_lines(function, sources, targets, self._processes, bar, folder / f"{name}{PROGRESS}")

        def targets_of(name):
            return self._paths(folder, name) + self._paths(folder, name, ".bpe")

        def divide(rows):
            columns, counts = [], Counter()
            for name in divided:
                part, found = columns_of([row[1:] for row in rows if row[0] == name], limits)
                columns += part
                counts.update({f"{name}, {what}": count for what, count in found.items()})
            return columns, counts

        divided = ["train", "valid"] if self._recipe.valid_every else ["train"]
        limits = self._limits if self._recipe.clean == "pieces" else None
        texts = {name: self._made(self._read, name) + self._made(self._tokenised, name) for name in self._sets()}
        sources = [self._workshop.of(self._split) / DESTINATIONS, *texts.pop("train")]
        found = run("train", divide, sources, [path for name in divided for path in targets_of(name)])
        counts = {name: _part(found, name) for name in divided}
        for name, paths in texts.items():
            counts[name] = dict(run(name, lambda rows: columns_of(rows, None), paths, targets_of(name)))
        for name, count in _repeated({name: self._paths(folder, name) for name in counts}).items():
            counts[name][IN_TRAINING] = count
        for name, of_set in counts.items():
            _refuse_empty(name, of_set, self._workshop.record(self._split)["counts"])
        for name in pieces:
            shutil.copy2(self._workshop.of(self._learnt) / name, folder / name)
        return counts

    def _binarise(self, folder, report):
        counts = self._workshop.record(self.text)["counts"]
        tokens = sum(part.get(language, 0) + part["lines"] for part in counts.values() for language in self._languages)
        ending, languages = ("", self._languages) if len(self._languages) == 2 else (f".{self._languages[0]}", ())
        prefixes = {name: self._workshop.of(self.text) / f"{name}.bpe{ending}" for name in counts}
        with report.stage("binarise", "bytes", 2 * tokens) as bar:
            binarise(folder, prefixes, languages, self._joined, self._processes, bar)
        return {}


def words_of(language, recipe):
    """The :class:`Tokenizer` of a language."""
    by_words = recipe.tokenizer if language == "zh" else "moses"
    tokenizer = by_words if recipe.subwords == "bpe" else "none"
    return Tokenizer(
        language,
        tokenizer,
        normalise=recipe.normalise and tokenizer == "moses",
        split_hyphens=recipe.split_hyphens and tokenizer == "moses",
        straighten_apostrophes=recipe.straighten_apostrophes,
        lowercase=recipe.lowercase,
    )


def codes_of(languages, recipe):
    """The file of subwords of each language."""
    if recipe.subwords == "sentencepiece":
        return dict.fromkeys(languages, MODEL)
    if len(recipe.merges) == 1:
        return dict.fromkeys(languages, "codes.bpe")
    return {language: f"codes.{language}.bpe" for language in languages}


def _part(counts, name):
    """The counts of one set, without its name."""
    return {what.removeprefix(f"{name}, "): count for what, count in counts.items() if what.startswith(f"{name}, ")}


def _repeated(sets):
    """How many lines of the other sets are in the training set, too: the same line in all languages.

    Args:
        sets: dict from a set to its files. Of the training set, which may be large, nothing is held.

    Returns:
        dict from a set to the number, without those that have none.
    """
    with ExitStack() as stack:
        rows = {
            name: zip(*(stack.enter_context(open(path, "rb")) for path in paths), strict=True)
            for name, paths in sets.items()
        }
        training = rows.pop("train")
        hashes = {name: list(map(hash, lines)) for name, lines in rows.items()}
        seen = set().union(*hashes.values()).intersection(map(hash, training))
    counts = {name: sum(number in seen for number in numbers) for name, numbers in hashes.items()}
    return {name: count for name, count in counts.items() if count}


def _refuse_empty(name, counts, split):
    if not counts.get("lines"):
        dropped = {what: count for of in (split, counts) for what, count in of.items() if what.startswith("dropped")}
        reasons = ", ".join(f"{count:,} {what}" for what, count in dropped.items()) or "there were none"
        raise UsageError(
            f"no sentences are left in the {name} set ({reasons}). Check the text, and --min-length, --max-length, "
            "--max-ratio and --valid-every."
        )
