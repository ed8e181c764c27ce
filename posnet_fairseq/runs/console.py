"""Messages of runs: on standard error, with the name of the recipe or program in front."""

import re
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
    """Print a command as it could be typed."""
    # In one piece, among the lines of other processes.
    print(" ".join(_quoted(str(word)) for word in command) + "\n", end="", flush=True)


def _quoted(word: str) -> str:
    if not word or not word.isprintable():
        return shlex.quote(word)
    return re.sub(r"([^\w@%+=:./-])", r"\\\1", word)
