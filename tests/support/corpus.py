"""An invented language pair: every word has one translation, and sentences are reversed."""

import random
from pathlib import Path

WORDS = 20


def translate(source):
    return " ".join(word.replace("a", "b") for word in reversed(source.split()))


def make_corpus(folder, train=2000, valid=64, test=61, seed=1):
    """Plain text files SET.xx and SET.yy."""
    folder = Path(folder)
    generator = random.Random(seed)
    for name, count in (("train", train), ("valid", valid), ("test", test)):
        sources = [
            " ".join(f"a{generator.randrange(WORDS)}" for _ in range(generator.randint(2, 6))) for _ in range(count)
        ]
        (folder / f"{name}.xx").write_text("".join(f"{line}\n" for line in sources))
        (folder / f"{name}.yy").write_text("".join(f"{translate(line)}\n" for line in sources))
