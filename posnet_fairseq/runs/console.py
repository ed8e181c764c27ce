"""Messages of runs: on standard error, with the name of the recipe or program in front."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from posnet_fairseq.shared.errors import visible
from posnet_fairseq.shared.progress import shown


def say(text: str) -> None:
    """Print a line."""
    print(f"{Path(sys.argv[0]).name}: {visible(shown(text))}\n", end="", file=sys.stderr, flush=True)


def show(command: Sequence[object]) -> None:
    """Print a command as it could be typed, in one piece among the lines of other processes."""
    print(shlex.join(map(str, command)) + "\n", end="", flush=True)
