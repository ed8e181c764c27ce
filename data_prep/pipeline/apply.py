"""Application of subwords to all sets, and limits on the training pairs by subwords."""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from posnet_data_prep.dataset import Recipe
from posnet_data_prep.pipeline.clean import DROPPED, fault
from posnet_data_prep.pipeline.lines import Columns, Rows, count_tokens
from posnet_fairseq.text.subwords import Subwords

# Counts of a set besides lines, tokens and dropped pairs.
NOT_NFC, IN_TRAINING = "lines not in NFC", "lines also in training"


class Segmenter:
    """Splits rows of words into subwords."""

    def __init__(
        self, languages: Sequence[str], subwords: Sequence[Subwords], limits: Recipe | None, sets: Sequence[str]
    ) -> None:
        self._languages, self._subwords, self._limits, self._sets = languages, subwords, limits, sets

    def segment(self, rows: Rows, limits: Recipe | None = None) -> tuple[Columns, Counter[str]]:
        """Return columns of plain text and of subwords, and counts, of rows of the texts and then their words."""
        kept: list[tuple[str, ...]] = []
        dropped: Counter[str] = Counter()
        width = len(self._languages)
        for row in rows:
            tokens = [subwords.split(line) for subwords, line in zip(self._subwords, row[width:], strict=True)]
            problem = fault(limits, *tokens) if limits else None
            if problem:
                dropped[f"{DROPPED}{problem}"] += 1
            else:
                kept.append((*row[:width], *tokens))
        columns: Columns = [list(column) for column in zip(*kept, strict=True)] or [[] for _ in range(2 * width)]
        odd = sum(not all(unicodedata.is_normalized("NFC", text) for text in row[:width]) for row in kept)
        return columns, count_tokens(self._languages, columns[width:]) + dropped + Counter({NOT_NFC: odd})

    def segment_training_text(self, rows: Rows) -> tuple[Columns, Counter[str]]:
        """Return columns of each set in turn, and counts as ``SET, WHAT``; rows begin with the name of their set."""
        columns: Columns = []
        counts: Counter[str] = Counter()
        for name in self._sets:
            part, found = self.segment([row[1:] for row in rows if row[0] == name], self._limits)
            columns += part
            counts.update({f"{name}, {what}": count for what, count in found.items()})
        return columns, counts


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
