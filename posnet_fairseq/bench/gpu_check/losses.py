"""Whether the loss of a training fell: ``losses LOG``, the log in fairseq's JSON format."""

import json
import math
import re
import sys
from pathlib import Path


def losses(log: str) -> list[float]:
    """The training losses that a log has, in order."""
    found = (json.loads(line) for line in re.findall(r"\{.*\}", log))
    return [float(each["loss"]) for each in found if "loss" in each]


def main(path: Path) -> None:
    """Print the first and the last loss. Exit code 1 if one is not finite, or the last is not below the first."""
    found = losses(path.read_text())
    if len(found) < 2 or not all(map(math.isfinite, found)) or found[-1] >= found[0]:
        sys.exit(f"the loss did not fall, or is not finite: {found}")
    print(f"loss {found[0]:.3f} at first, {found[-1]:.3f} at last")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
