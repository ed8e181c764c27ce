"""Optional dependencies: the extras of posnet's package."""

import shlex
import sys


def how_to_install(extra: str) -> str:
    """Return the sentence that says how to install an extra, such as "comet", for this Python."""
    return f"Run {shlex.quote(sys.executable)} -m pip install -e '.[{extra}]' in the posnet folder."
