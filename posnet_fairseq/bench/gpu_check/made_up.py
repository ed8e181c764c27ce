"""Made-up text: every target sentence has the words of its source, in reverse and with other names.

``python -m posnet_fairseq.bench.gpu_check.made_up NAME LINES`` writes NAME.en and NAME.de.
"""

import random
import sys
from pathlib import Path


def write_text(prefix: Path, lines: int, words: int, length: int, seed: int = 1) -> None:
    """Write PREFIX.en and PREFIX.de.

    Args:
        prefix: of both paths.
        lines: sentence pairs.
        words: distinct words that sentences are drawn from.
        length: words of each sentence.
        seed: of the drawing.
    """
    drawn = random.Random(seed)
    sentences = [[drawn.randrange(words) for _ in range(length)] for _ in range(lines)]
    for language, word, order in (("en", "a", 1), ("de", "b", -1)):
        text = "".join(" ".join(f"{word}{number}" for number in each[::order]) + "\n" for each in sentences)
        prefix.with_name(f"{prefix.name}.{language}").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    name, count = sys.argv[1:]
    write_text(Path(name), int(count), words=99, length=12, seed=len(name))
