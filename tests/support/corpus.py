"""An invented language pair: every word has one translation, and sentences are reversed."""

import random
from pathlib import Path

from posnet_data_prep.dataset import SETS
from posnet_data_prep.prepare import main as prepare

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


def prepared(text, out, *options, **sizes):
    """A dataset of posnet-prepare in the folder `out`, made of such files in the folder `text`."""
    text.mkdir(exist_ok=True)
    make_corpus(text, **sizes)
    files = [word for name in SETS for word in (f"--{name}", *(str(text / f"{name}.{side}") for side in ("xx", "yy")))]
    prepare(["corpus", *(options or ("--merges", "20")), "--workers", "1", "--out", str(out), *files])
    return out
