"""Errors in what a user gave, reported as one sentence."""

import contextlib
import difflib
import errno
import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

# Control characters that a terminal may execute, all but tab and line feed; and characters that change the direction of
# the text after them or break its line.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Return a text that is safe to print on a terminal: control and direction characters are escaped."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def counted(number: int, unit: str, plural: str = "") -> str:
    """Return a number with its unit, "1 line" or "2,000 lines"; `plural` is that of the unit if it is not with an s."""
    return f"{number:,} {unit if number == 1 else plural or f'{unit}s'}"


def flag(name: str) -> str:
    """Return the command line's name of an option: ``--clip-distance`` for ``clip_distance``."""
    return "--" + name.replace("_", "-")


# Names of options and of the arguments of the Python function that is called; None under a command.
_arguments: ContextVar[Mapping[str, str] | None] = ContextVar("arguments", default=None)


def option(name: str, value: object = None) -> str:
    """Return what the user calls an option, with a value, for errors: its flag, or in a call from Python the argument.

    ``--on-long skip``, or ``on_long='skip'``.
    """
    arguments = _arguments.get()
    if arguments is None:
        return flag(name) if value is None else f"{flag(name)} {value}"
    return arguments.get(name, name) if value is None else f"{arguments.get(name, name)}={value!r}"


@contextlib.contextmanager
def called_from_python(**arguments: str) -> Iterator[None]:
    """Let errors of a block name arguments of Python, see :func:`option`; `arguments` differ from their options.

    Paths that the system does not let a program look at, as names that are too long, are a :class:`UsageError`.
    """
    token = _arguments.set(arguments)
    try:
        yield
    except OSError as error:
        if error.filename is None or error.errno not in (errno.ENAMETOOLONG, errno.EACCES):
            raise
        raise unreadable(error.filename, error) from error
    finally:
        _arguments.reset(token)


def refuse_unknown_arguments(also: Iterable[str] = ()) -> Callable[[Function], Function]:
    """Decorate a function: a keyword that it does not have is a UsageError; `also`: those of its ``**settings``."""

    def decorate(function: Function) -> Function:
        kinds = inspect.signature(function).parameters
        known = [*(name for name, each in kinds.items() if each.kind is each.KEYWORD_ONLY), *also]

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            for name in named:
                if name not in known and (name not in kinds or kinds[name].kind is inspect.Parameter.VAR_KEYWORD):
                    what = f"{function.__name__} has no argument {name:.50}, it has {', '.join(known)}"
                    raise UsageError(f"{what}.{nearest(name, known)}")
            return function(*arguments, **named)

        return cast(Function, call)

    return decorate


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: " Did you mean ...?", "" if nothing is near."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {found[0]}?" if found else ""


def last_error(text: str) -> str:
    """Return the last error in what a program has printed, with all lines that belong to it; "" if there is none."""
    found = re.findall(r"^.*?(?<!\w)error: (.*(?:\n  .*)*)", text, re.MULTILINE)
    return found[-1] if found else ""


class UsageError(ValueError):
    """An error in the input. Its text states what was given, what is allowed and what to do."""


@contextlib.contextmanager
def about(name: object) -> Iterator[None]:
    """Put a name in front of every :class:`UsageError` of a block."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error


class DamagedError(UsageError):
    """A file whose content is damaged."""


def unreadable(path: str | os.PathLike[str], error: OSError) -> UsageError:
    """Return the error of a file that the system does not let a program read, with the true cause."""
    if isinstance(error, FileExistsError) and os.path.islink(path) and not os.path.exists(path):
        return UsageError(f"{path}: a link to {os.readlink(path)}, which is not there. Give another path, or mount it.")
    if isinstance(error, PermissionError):
        advice = "Ask its owner for access (chmod)"
    elif error.errno in (errno.EIO, errno.ESTALE):
        advice = "Check the disk, or copy the file again"
    else:
        advice = "Check the path"
    return UsageError(f"{path}: {error.strerror or error}. {advice}.")
