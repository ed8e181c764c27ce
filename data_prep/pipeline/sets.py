"""The sets of a dataset: limits on training pairs, after Moses' clean-corpus-n.perl, the split, and subwords."""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby, islice, repeat
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import regex
from numpy.typing import NDArray

from posnet_data_prep.dataset import Recipe
from posnet_data_prep.pipeline.lines import Columns, Rows, count_tokens
from posnet_fairseq.shared.progress import Bar
from posnet_fairseq.text.languages import SAMPLE, Scripts
from posnet_fairseq.text.pipeline import with_tag
from posnet_fairseq.text.subwords import Subwords

LONGEST_WORD = 1000  # characters
DROPPED = "dropped, "  # beginning of the name of a count, in front of the reason
# Counts of a set besides lines, tokens and dropped pairs.
NOT_NFC, IN_TRAINING = "lines not in NFC", "lines also in training"
REPEATED, SOURCE_IN_TRAINING = "lines that repeat others", "lines whose source is in training"
COPIES = "lines that weights add"  # of the training set
EXAMPLE = "example of a source in training"
SHOWN = 60  # characters of a line in an example
_NO_LETTER = regex.compile(r"[\W_]+")  # vowel signs and other marks are letters of a word
# Likewise of pairs that --drop-copies and --drop-other-scripts drop from the training text, by the reason.
ODD = {"copy": "lines with equal sides", "script": "lines in another script"}


def fault(recipe: Recipe, source: str, target: str) -> str | None:
    """Return the limit that a pair of tokens between spaces breaks: empty, length, ratio, word, or None."""
    shorter, longer = sorted(len(side.split()) for side in (source, target))
    if shorter == 0:
        return "empty"
    if shorter < recipe.min_length or longer > recipe.max_length:
        return "length"
    if longer > recipe.max_ratio * shorter:
        return "ratio"
    return "word" if has_overlong_word(source, target) else None


def has_overlong_word(*lines: str) -> bool:
    """Return whether a line has a word of more than 1,000 characters, for which BPE may take minutes."""
    long = [line for line in lines if len(line) > LONGEST_WORD]
    return any(len(word) > LONGEST_WORD for line in long for word in line.split())


def dropped_pairs(*counts: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of dropped pairs, by reason, from the counts of stages: those named ``dropped, REASON``."""
    found: Counter[str] = Counter()
    for of in counts:
        found.update({what.removeprefix(DROPPED): count for what, count in of.items() if what.startswith(DROPPED)})
    return dict(found)


def split(texts: Sequence[Path], destinations: Path, recipe: Recipe, bar: Bar) -> dict[str, int]:
    """Write the set of each training pair to a file, a line for each: ``train``, ``valid``, or ``-`` if it is dropped.

    Every N-th pair goes to the validation set; pairs dropped by their ``words`` do not count, nor do those that equal
    an earlier one, if they are dropped. To be cleaned by ``pieces``, only pairs with an overlong word and these are
    dropped here. Return the numbers of pairs ``read`` and of each set.
    """
    is_repeated = repeats(texts) if recipe.drop_repeated else None
    counts, number = Counter(read=0, train=0), 0
    with ExitStack() as stack:
        readers = [stack.enter_context(open(path, "rb")) for path in texts]
        file = stack.enter_context(open(destinations, "w", encoding="utf-8"))
        for row in bar.over(zip(*readers, strict=True)):
            repeats_another = is_repeated is not None and is_repeated[counts["read"]]
            counts["read"] += 1
            lines = [line.decode() for line in row]
            problem = "repeated" if repeats_another else None
            if recipe.clean == "words":
                problem = fault(recipe, *lines) or problem
            elif recipe.clean and has_overlong_word(*lines):
                problem = "word"
            number += not (problem == "repeated" or (problem and recipe.clean == "words"))
            name = "valid" if recipe.valid_every and number % recipe.valid_every == 0 else "train"
            counts[f"{DROPPED}{problem}" if problem else name] += 1
            file.write("-\n" if problem else f"{name}\n")
    return dict(counts)


@dataclass(frozen=True)
class Segmenter:
    """Splits rows of words into subwords, and looks for odd rows, which the recipe may drop from the training text."""

    languages: Sequence[str]
    subwords: Sequence[Subwords]
    scripts: Sequence[Mapping[str, Scripts]]  # of each language, by tag
    recipe: Recipe
    sets: Sequence[str]  # of the rows that begin with the name of their set

    def segment(self, rows: Rows, training: bool = False, weighted: bool = False) -> tuple[Columns, Counter[str]]:
        """Return columns of plain text and of subwords, and counts, of rows of the texts and then their words.

        Behind them rows may have a tag, which goes in front of the first text's subwords, and a weight: the number of
        rows that is made of one, if they are `weighted`.
        """
        kept: list[tuple[str, ...]] = []
        counts: Counter[str] = Counter()
        width = len(self.languages)
        is_dropped = {"copy": self.recipe.drop_copies, "script": self.recipe.drop_other_scripts} if training else {}
        for row in rows:
            words = row[width : 2 * width]
            tokens = [subwords.split(line) for subwords, line in zip(self.subwords, words, strict=True)]
            tag, weight = row[2 * width :] or ("", "1")
            odd = self._oddities(row[:width], tag)
            problem = next(filter(is_dropped.get, odd), None)
            if training and self.recipe.clean == "pieces":
                problem = fault(self.recipe, *tokens) or problem
            if problem:
                counts[f"{DROPPED}{problem}"] += 1
                continue
            copies = int(weight) if weighted else 1
            tokens[0] = with_tag(tag, tokens[0])
            kept += [(*row[:width], *tokens)] * copies
            unchanged = row[1:width] if self.recipe.normal_form == "nfkc" else row[:width]
            counts[NOT_NFC] += not all(unicodedata.is_normalized("NFC", text) for text in unchanged)
            counts.update(ODD[what] for what in odd)
            if copies > 1:
                counts[COPIES] += copies - 1
        columns: Columns = [list(column) for column in zip(*kept, strict=True)] or [[] for _ in range(2 * width)]
        return columns, count_tokens(self.languages, columns[width:]) + counts

    def _oddities(self, texts: Sequence[str], tag: str) -> list[str]:
        """Return what is odd about the sides of a pair, keys of :data:`ODD`."""
        if len(texts) == 1:
            return []
        copy = ["copy"] if texts[0] == texts[1] != "" else []
        sides = zip(self.scripts, texts, strict=True)
        return copy + ["script"] * any(
            tag in scripts and scripts[tag].is_foreign(text, entirely=True) for scripts, text in sides
        )

    def segment_training_text(self, rows: Rows) -> tuple[Columns, Counter[str]]:
        """Return columns of each set in turn, and counts as ``SET, WHAT``; rows begin with the name of their set."""
        columns: Columns = []
        counts: Counter[str] = Counter()
        for name in self.sets:
            part, found = self.segment([row[1:] for row in rows if row[0] == name], True, weighted=name == "train")
            columns += part
            counts.update({f"{name}, {what}": count for what, count in found.items()})
        return columns, counts


def usual_scripts(path: Path, lines: int, tags: Path | None = None) -> dict[str, Scripts]:
    """Return the scripts of a text's lines with each tag, "" without tags, by about a thousand lines of each."""
    samples: dict[str, list[str]] = {}
    with ExitStack() as stack:
        text = stack.enter_context(open(path, encoding="utf-8", newline="\n"))
        of_lines = stack.enter_context(open(tags)) if tags else repeat("")
        sizes = Counter(stack.enter_context(open(tags))) if tags else {"": lines}
        for tag, part in groupby(zip(of_lines, text, strict=False), itemgetter(0)):
            sample = islice(part, 0, None, sizes[tag] // SAMPLE + 1)
            samples.setdefault(tag.removesuffix("\n"), []).extend(line for _, line in sample)
    return {tag: Scripts.of(sample) for tag, sample in samples.items()}


def counts_of(name: str, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of one set, among the counts that :meth:`Segmenter.segment_training_text` returns."""
    return {what.removeprefix(f"{name}, "): count for what, count in counts.items() if what.startswith(f"{name}, ")}


def repeats(texts: Sequence[Path]) -> NDArray[np.bool_]:
    """Return (N,) whether each of the N rows of files equals an earlier one."""
    hashes = _hashes(texts)
    repeated = np.ones(len(hashes), bool)
    repeated[np.unique(hashes, return_index=True)[1]] = False
    return repeated


def _hashes(paths: Sequence[Path], either_way: bool = False) -> NDArray[np.int64]:
    """Return (N,) hashes of the N rows of files, the same for equal rows in this process, or for these `either_way`."""
    with ExitStack() as stack:
        rows = zip(*(stack.enter_context(open(path, "rb")) for path in paths), strict=True)
        return np.fromiter(map(hash, (tuple(sorted(row)) for row in rows) if either_way else rows), np.int64)


def shared_with_training(sets: Mapping[str, Sequence[Path]], either_way: bool) -> dict[str, dict[str, Any]]:
    """Return counts, without zeros, of the rows of each other set that are in the training set, which may be large.

    With `either_way`, they may be there with source and target the other way round. Counted are also rows whose source
    alone is there, apart from case and punctuation, with an example.
    """
    training = np.unique(_hashes(sets["train"], either_way))
    found: dict[str, dict[str, Any]] = {}
    sources = {name: list(_sources(paths[0])) for name, paths in sets.items() if name != "train"}
    wanted = set().union(*sources.values()) - {hash(b"")}
    first: dict[int, int] = {}  # number of the first line of the training set with a source
    for number, source in enumerate(_sources(sets["train"][0]), start=1):
        if source in wanted:
            first.setdefault(source, number)
    for name, of_set in sources.items():
        is_there = np.isin(_hashes(sets[name], either_way), training)
        others = [index for index, source in enumerate(of_set) if source in first and not is_there[index]]
        found[name] = {IN_TRAINING: int(is_there.sum()), SOURCE_IN_TRAINING: len(others)}
        for index in others[:1]:
            path, of_training = sets[name][0], sets["train"][0]
            with open(path, encoding="utf-8", newline="\n") as lines:
                line = next(islice(lines, index, None)).removesuffix("\n")
            shown = f"{line[:SHOWN]!r}{' ...' * (len(line) > SHOWN)}"
            place = f"line {index + 1:,} of {path.name}, {shown}"
            found[name][EXAMPLE] = f"{place}, and line {first[of_set[index]]:,} of {of_training.name}"
    return {name: {what: count for what, count in counts.items() if count} for name, counts in found.items()}


def _sources(path: Path) -> Iterator[int]:
    """Yield hashes of the letters and digits of lines, in lower case."""
    with open(path, "rb") as lines:
        for line in lines:
            yield hash(_letters(line))


# Of ASCII: letters in lower case, digits, and nothing else.
_LOWERCASE = bytes(range(128)).lower() + bytes(range(128, 256))
_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalnum())


def _letters(line: bytes) -> bytes:
    """Return the letters and digits of a line, in lower case; b"" if it has none."""
    if line.isascii():  # fifteen times as fast
        return line.translate(_LOWERCASE, _NO_LETTERS)
    return _NO_LETTER.sub("", line.decode().casefold()).encode()
