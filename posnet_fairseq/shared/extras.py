"""Optional dependencies: the extras of posnet's package."""

import shlex
import sys


def how_to_install(extra: str) -> str:
    """The sentence that says how to install an extra into the environment of this Python, "comet" for instance."""
    return f"Run {shlex.quote(sys.executable)} -m pip install -e '.[{extra}]' in the posnet folder."
