"""Errors in what a user gave, reported as one sentence."""

import contextlib
import errno
import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar

# Control characters that a terminal may execute, all but tab and line feed; and characters that change the direction of
# the text after them or break its line.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Return a text that is safe to print on a terminal: control and direction characters are escaped."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def flag(name: str) -> str:
    """Return the command line's name of an option: ``--clip-distance`` for ``clip_distance``."""
    return "--" + name.replace("_", "-")


# Names of options and of the arguments of the Python function that is called; None under a command.
_arguments: ContextVar[Mapping[str, str] | None] = ContextVar("arguments", default=None)


def option(name: str) -> str:
    """Return what the user calls an option, for errors: its flag, or in a call from Python the argument."""
    arguments = _arguments.get()
    return flag(name) if arguments is None else arguments.get(name, name)


@contextlib.contextmanager
def called_from_python(**arguments: str) -> Iterator[None]:
    """Let errors of a block name arguments of Python, see :func:`option`; `arguments` differ from their options."""
    token = _arguments.set(arguments)
    try:
        yield
    finally:
        _arguments.reset(token)


def last_error(text: str) -> str:
    """Return the last error in what a program has printed, with all lines that belong to it; "" if there is none."""
    found = re.findall(r"^.*?(?<!\w)error: (.*(?:\n  .*)*)", text, re.MULTILINE)
    return found[-1] if found else ""


class UsageError(ValueError):
    """An error in the input. Its text states what was given, what is allowed and what to do."""


class DamagedError(UsageError):
    """A file whose content is damaged."""


def unreadable(path: object, error: OSError) -> UsageError:
    """Return the error of a file that the system does not let a program read, with the true cause."""
    if isinstance(error, PermissionError):
        advice = "Ask its owner to let you read it (chmod)"
    elif error.errno in (errno.EIO, errno.ESTALE):
        advice = "Check the disk, or copy the file again"
    else:
        advice = "Check the path"
    return UsageError(f"{path}: {error.strerror or error}. {advice}.")
