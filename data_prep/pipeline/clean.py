"""Limits on the lengths of training pairs, after Moses' clean-corpus-n.perl, and the split into sets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from posnet_data_prep.dataset import Recipe
from posnet_fairseq.shared.progress import Bar

LONGEST_WORD = 1000  # characters
DROPPED = "dropped, "  # beginning of the name of a count, in front of the reason
BETWEEN_REPORTS = 10_000  # lines


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
            problem = None
            if recipe.clean == "words":
                problem = fault(recipe, *lines)
            elif recipe.clean and has_overlong_word(*lines):
                problem = "word"
            number += not (problem and recipe.clean == "words")
            name = "valid" if recipe.valid_every and number % recipe.valid_every == 0 else "train"
            counts[f"{DROPPED}{problem}" if problem else name] += 1
            file.write("-\n" if problem else f"{name}\n")
        bar.move_to(counts["read"])
    return dict(counts)
