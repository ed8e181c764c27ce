"""Made-up sentence pairs, in which a target is its source backwards: ``made_up FOLDER``."""

import random
import sys
from pathlib import Path

from posnet_fairseq.shared.files import save_lines


def main(folder: Path) -> None:
    """Write train and valid files of the languages a and b."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = random.Random(1)
    for name, count in (("train", 2000), ("valid", 100)):
        rows = [[f"w{numbers.randrange(200)}" for _ in range(numbers.randint(4, 30))] for _ in range(count)]
        save_lines(folder / f"{name}.a", [" ".join(row) for row in rows])
        save_lines(folder / f"{name}.b", [" ".join(reversed(row)) for row in rows])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
