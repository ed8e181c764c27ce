"""Split of the training text into training and validation set."""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from posnet_data_prep.pipeline.clean import DROPPED, Limits, has_overlong_word
from posnet_fairseq.shared.progress import Bar

BETWEEN_REPORTS = 10_000  # lines


def split(
    texts: Sequence[Path], destinations: Path, every: int | None, clean: str | None, limits: Limits, bar: Bar
) -> dict[str, int]:
    """Write the set of each training pair to a file, a line for each: ``train``, ``valid``, or ``-`` if it is dropped.

    Args:
        texts: words of each language, a pair a line.
        destinations: file to write.
        every: every N-th pair goes to the validation set; pairs that are dropped by ``words`` do not count. None: there
            is a validation set already.
        clean: unit of the limits. Pairs are limited here by ``words``; if it is ``pieces``, only pairs with an overlong
            word are dropped here.
        limits: limits on pairs.
        bar: shows progress in lines.

    Returns:
        Number of pairs that were ``read``, and by destination.
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
