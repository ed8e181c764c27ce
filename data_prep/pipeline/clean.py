"""Limits on the lengths of training pairs, after Moses' clean-corpus-n.perl, and the split into sets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from posnet_fairseq.shared.progress import Bar

LONGEST_WORD = 1000  # characters
DROPPED = "dropped, "  # beginning of the name of a count, in front of the reason
BETWEEN_REPORTS = 10_000  # lines


@dataclass(frozen=True)
class Limits:
    """Limits on the numbers of tokens of a training pair, as of :class:`posnet_data_prep.dataset.Recipe`."""

    min_length: int
    max_length: int
    max_ratio: float

    def fault(self, source: str, target: str) -> str | None:
        """Return the limit that a pair of tokens between spaces breaks: empty, length, ratio, word, or None."""
        shorter, longer = sorted(len(side.split()) for side in (source, target))
        if shorter == 0:
            return "empty"
        if shorter < self.min_length or longer > self.max_length:
            return "length"
        if longer > self.max_ratio * shorter:
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


def split(
    texts: Sequence[Path], destinations: Path, every: int | None, clean: str | None, limits: Limits, bar: Bar
) -> dict[str, int]:
    """Write the set of each training pair to a file, a line for each: ``train``, ``valid``, or ``-`` if it is dropped.

    Every N-th pair goes to the validation set; pairs dropped by their ``words`` do not count. To be cleaned by
    ``pieces``, only pairs with an overlong word are dropped here. Return the numbers of pairs ``read`` and of each set.
    """
    counts, number = Counter(read=0, train=0), 0
    with ExitStack() as stack:
        readers = [stack.enter_context(open(path, "rb")) for path in texts]
        file = stack.enter_context(open(destinations, "w", encoding="utf-8"))
        for row in zip(*readers, strict=True):
            counts["read"] += 1
            if counts["read"] % BETWEEN_REPORTS == 0:
                bar.move_to(counts["read"])
            lines = [line.decode() for line in row]
            fault = None
            if clean == "words":
                fault = limits.fault(*lines)
            elif clean and has_overlong_word(*lines):
                fault = "word"
            number += not (fault and clean == "words")
            name = f"{DROPPED}{fault}" if fault else "valid" if every and number % every == 0 else "train"
            counts[name] += 1
            file.write("-\n" if fault else f"{name}\n")
        bar.move_to(counts["read"])
    return dict(counts)
