"""Whether a side of a corpus is shifted: lines that fit the translation of a neighbor better than their own."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

FARTHEST = 3  # lines by which a side is found to be shifted
# Evidence for a shift, about a log likelihood ratio, from which on it is said. Text whose lines belong together has at
# most 11, shuffled text 35; a shift makes 0.3 to 2.5 a line.
ENOUGH = 40.0
BLOCK = 4000  # lines that are looked at together
# Weights of what lines have in common that belong together: length, digits, marks.
LENGTH, DIGITS, MARKS = 3.0, 2.5, 1.0
# Evidence of each line that is not counted, so that no offset gains by chance where none fits.
MARGIN = 0.3
SMOOTHING = 4  # characters that are added to a length: the shorter lines are, the less theirs tell
LARGEST = 1.0  # difference of the logarithms of lengths that is as bad as any larger one
# Punctuation and symbols that translations keep, often in the full width of East Asian text.
_MARKS = "?!:;()[]{}%/=<>@#*_&+|$\\"
_ARABIC = {"؟": "?", "؛": ";", "٪": "%"}
_CODES = 2**16  # of characters that may have a weight

_Features = NDArray[np.int64]  # of each line its characters, and sums of weights of its digits and of its marks
_Evidence = NDArray[np.float64]


@dataclass(frozen=True)
class Shift:
    """Lines whose translation stands beside another line.

    Attributes:
        first: number of the first of these lines of the source, from 1, about.
        last: number of the last one, about.
        offset: lines from such a line on to its translation.
    """

    first: int
    last: int
    offset: int


class ShiftDetector:
    """Looks for a shift in sentence pairs as they come, by lengths, numbers and marks of neighboring lines.

    Evidence for each offset, against 0, is summed up over the lines, and begins anew where the sum is negative: Page's
    test. A few thousand lines are kept at a time.
    """

    def __init__(self) -> None:
        self._lines: tuple[list[str], list[str]] = [], []  # not yet looked at
        self._features = np.zeros((2, 3, 0), np.int64)  # of the last lines that were
        self._seen = 0
        self._characters = np.ones(2)
        self._runs = [_Run(offset) for offset in range(-FARTHEST, FARTHEST + 1) if offset]

    def add(self, source: str, target: str) -> None:
        """Take a pair."""
        sources, targets = self._lines
        sources.append(source)
        targets.append(target)
        if len(sources) == BLOCK:
            self._look()

    def shift(self) -> Shift | None:
        """Return the shift that there is most evidence for in all pairs, None if there is not enough."""
        self._look()
        best = max(self._runs, key=lambda run: run.most)
        return best.found if best.most > ENOUGH else None

    def _look(self) -> None:
        if not self._lines[0]:
            return
        new = np.stack([_features(lines) for lines in self._lines])
        for lines in self._lines:
            lines.clear()
        source, target = features = np.concatenate([self._features, new], axis=2)
        begin = self._seen - self._features.shape[2]
        self._characters += new[:, 0].sum(axis=1)
        ratio = self._characters[1] / self._characters[0]
        own = _agreement(source, target, ratio)
        for run in self._runs:
            first, end = run.seen - begin, len(own) - max(run.offset, 0)
            if first < end:
                there = target[:, first + run.offset : end + run.offset]
                run.add(_agreement(source[:, first:end], there, ratio) - own[first:end] - MARGIN)
        self._seen += new.shape[2]
        self._features = features[:, :, -FARTHEST:]


class _Run:
    """The evidence for an offset."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.seen = max(0, -offset)  # lines of the source, from the first that has such a translation on
        self.most = 0.0  # evidence so far
        self.found: Shift | None = None  # where it is
        self._now, self._begin = 0.0, self.seen  # its sum, and the line from which on it is summed up

    def add(self, evidence: _Evidence) -> None:
        """Take the evidence of the next lines."""
        sums = self._now + np.cumsum(evidence)
        sums -= np.minimum(np.minimum.accumulate(sums), 0)
        at = int(sums.argmax())
        if sums[at] > self.most:
            self.most = float(sums[at])
            self.found = Shift(self._begun(sums[: at + 1]) + 1, self.seen + at + 1, self.offset)
        self._now, self._begin = float(sums[-1]), self._begun(sums)
        self.seen += len(sums)

    def _begun(self, sums: _Evidence) -> int:
        """Return the line, from 0, from which on the last of the sums was summed up."""
        zeros = np.flatnonzero(sums == 0)
        return self.seen + int(zeros[-1]) + 1 if len(zeros) else self._begin


def _features(lines: Sequence[str]) -> _Features:
    """Return (3, N) features of N lines."""
    characters = np.frombuffer("".join(f"{line}\n" for line in lines).encode("utf-32-le"), np.uint32)
    ends = np.flatnonzero(characters == ord("\n"))
    begins = np.concatenate([[0], ends[:-1] + 1])
    weights = _weights()[:, np.minimum(characters, _CODES - 1)]
    return np.stack([ends - begins, *np.add.reduceat(weights, begins, axis=1)])


@cache
def _weights() -> NDArray[np.int64]:
    """Return (2, codes of characters) large numbers, of digits and of marks, 0 for other characters.

    Lines with equal sums have the same ones, in any order and however they are grouped, as in 5,300 and 5.300.
    """
    random = np.random.default_rng(0).integers(1, 2**62, 10 + len(_MARKS))
    weights = np.zeros((2, _CODES), np.int64)
    for code in range(_CODES):
        if (digit := unicodedata.decimal(chr(code), None)) is not None:
            weights[0, code] = random[digit]
    for mark, weight in zip(_MARKS, random[10:], strict=True):
        wide = chr(ord(mark) + 0xFEE0)
        for same in (mark, wide, *(arabic for arabic, ours in _ARABIC.items() if ours == mark)):
            weights[1, ord(same)] = weight
    return weights


def _agreement(source: _Features, target: _Features, ratio: float) -> _Evidence:
    """Return (N,) evidence that N lines belong together, by their (3, N) features and characters per character."""
    lengths = np.log(SMOOTHING + ratio * source[0]) - np.log(SMOOTHING + target[0])
    evidence = -LENGTH * np.minimum(np.abs(lengths), LARGEST)
    for ours, theirs, weight in zip(source[1:], target[1:], (DIGITS, MARKS), strict=True):
        evidence += np.where(ours == theirs, np.where(ours != 0, weight, 0.0), -weight / 2)
    return evidence
