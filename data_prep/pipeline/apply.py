"""Application of subwords to all sets, and limits on the training pairs by subwords."""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from posnet_data_prep.dataset import Recipe
from posnet_data_prep.pipeline.clean import DROPPED, fault
from posnet_data_prep.pipeline.lines import Columns, Rows, count_tokens
from posnet_fairseq.text.scripts import SAMPLE, Scripts
from posnet_fairseq.text.subwords import Subwords

# Counts of a set besides lines, tokens and dropped pairs.
NOT_NFC, IN_TRAINING = "lines not in NFC", "lines also in training"
# Likewise of pairs that --drop-copies and --drop-other-scripts drop from the training text, by the reason.
ODD = {"copy": "lines with equal sides", "script": "lines in another script"}


@dataclass(frozen=True)
class Segmenter:
    """Splits rows of words into subwords, and looks for odd rows, which the recipe may drop from the training text."""

    languages: Sequence[str]
    subwords: Sequence[Subwords]
    scripts: Sequence[Scripts]
    recipe: Recipe
    sets: Sequence[str]  # of the rows that begin with the name of their set

    def segment(self, rows: Rows, training: bool = False) -> tuple[Columns, Counter[str]]:
        """Return columns of plain text and of subwords, and counts, of rows of the texts and then their words."""
        kept: list[tuple[str, ...]] = []
        counts: Counter[str] = Counter()
        width = len(self.languages)
        is_dropped = {
            "copy": training and self.recipe.drop_copies,
            "script": training and self.recipe.drop_other_scripts,
        }
        for row in rows:
            tokens = [subwords.split(line) for subwords, line in zip(self.subwords, row[width:], strict=True)]
            odd = self._oddities(row[:width])
            problem = next(filter(is_dropped.get, odd), None)
            if training and self.recipe.clean == "pieces":
                problem = fault(self.recipe, *tokens) or problem
            if problem:
                counts[f"{DROPPED}{problem}"] += 1
                continue
            kept.append((*row[:width], *tokens))
            counts[NOT_NFC] += not all(unicodedata.is_normalized("NFC", text) for text in row[:width])
            counts.update(ODD[what] for what in odd)
        columns: Columns = [list(column) for column in zip(*kept, strict=True)] or [[] for _ in range(2 * width)]
        return columns, count_tokens(self.languages, columns[width:]) + counts

    def _oddities(self, texts: Sequence[str]) -> list[str]:
        """Return what is odd about the sides of a pair, keys of :data:`ODD`."""
        if len(texts) == 1:
            return []
        copy = ["copy"] if texts[0] == texts[1] != "" else []
        sides = zip(self.scripts, texts, strict=True)
        return copy + ["script"] * any(scripts.is_foreign(text, entirely=True) for scripts, text in sides)

    def segment_training_text(self, rows: Rows) -> tuple[Columns, Counter[str]]:
        """Return columns of each set in turn, and counts as ``SET, WHAT``; rows begin with the name of their set."""
        columns: Columns = []
        counts: Counter[str] = Counter()
        for name in self.sets:
            part, found = self.segment([row[1:] for row in rows if row[0] == name], training=True)
            columns += part
            counts.update({f"{name}, {what}": count for what, count in found.items()})
        return columns, counts


def usual_scripts(path: Path, lines: int) -> Scripts:
    """Return the scripts of a text, by about a thousand of its lines."""
    with open(path, encoding="utf-8", newline="\n") as text:
        return Scripts.of(list(islice(text, 0, None, lines // SAMPLE + 1)))


def counts_of(name: str, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of one set, among the counts that :meth:`Segmenter.segment_training_text` returns."""
    return {what.removeprefix(f"{name}, "): count for what, count in counts.items() if what.startswith(f"{name}, ")}


def count_repeated(sets: Mapping[str, Sequence[Path]]) -> dict[str, int]:
    """Return how many lines of each other set the training set, which may be large, has too; without zeros."""
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
