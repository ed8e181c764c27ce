"""The one error that users are meant to see, and how fairseq's commands show it."""

import logging
import os
import re
import sys
from numbers import Integral, Real
from pathlib import Path

# Control characters but for tab and line feed, which a terminal may take for commands; and what turns the direction of
# the text behind it, or breaks its line.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """A text as a terminal can be given it: control characters and those that turn its direction are escapes."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def flag(name):
    """What an option is called on a command line: ``--clip-distance`` for ``clip_distance``."""
    return "--" + name.replace("_", "-")


class UsageError(ValueError):
    """A mistake in the input. Its text says what was given, what is allowed and what to do."""


def check_range(name: str, number: object, least: float, most: float, whole: bool = False) -> None:
    """Refuse a number that is out of range.

    Args:
        name: what the user calls it.
        number: any value.
        least, most: range, both included.
        whole: refuse fractions.

    Raises:
        UsageError: it is no number, out of range, NaN, or a fraction where none is allowed.
    """
    if not isinstance(number, Integral if whole else Real):
        raise UsageError(f"{name} {number!r:.50}: give a {'whole ' if whole else ''}number.")
    if not least <= number <= most:
        raise UsageError(f"{name} {number}: give {least} or more, and at most {most:,}.")


class DamagedError(UsageError):
    """A file whose bytes are not what they should be."""


def causes(error):
    """`error`, what it was raised from or while handling, and so on."""
    seen = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def usage_error_in(error):
    """The :class:`UsageError` among the causes of `error`, or None.

    fairseq wraps errors in others ("Cannot load model parameters ..."); the sentence that helps is below.
    """
    return next((cause for cause in causes(error) if isinstance(cause, UsageError)), None)


def install_hook(explain):
    """Let an uncaught error that `explain` has a sentence for end one of fairseq's commands with it and exit code 2.

    Without this, they would print a traceback. All other errors, and other programs, keep theirs.

    Args:
        explain: function from an exception to a sentence or None.
    """
    program = Path(sys.argv[0])
    if not (program.name.startswith("fairseq-") or program.parent.name == "fairseq_cli"):
        return
    previous = sys.excepthook

    def hook(kind, error, traceback):
        sentence = explain(error)
        if sentence is None:
            return previous(kind, error, traceback)
        print(f"posnet: error: {visible(sentence)}", file=sys.stderr)
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(2)  # threads that load data are left behind, and abort an exit in good order

    sys.excepthook = hook
