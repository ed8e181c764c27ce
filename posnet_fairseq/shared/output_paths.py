"""Paths of outputs: where they lead, and whether a file can be written there."""

import contextlib
import errno
import fcntl
import os
import stat
import sys
import tempfile
from pathlib import Path

from posnet_fairseq.shared.errors import UsageError


def check_for_fairseq(path: Path, given: str, is_made: bool) -> None:
    """Refuse a path that fairseq's commands would read in another way.

    `given` is the path as the user gave it; `is_made`: fairseq-preprocess will make the folder.
    """
    name, reason = str(path), ""
    if ":" in name:
        reason = "fairseq takes a colon for the end of one folder and the start of the next"
    elif is_made and "," in name:
        reason = "fairseq takes a comma for the end of one path and the start of the next"
    elif name.startswith("-"):
        reason = "other commands take it for an option"
    elif "${" in name or name.endswith("\\"):
        reason = "fairseq reads ${ and a last backslash in its own way"
    if reason:
        raise UsageError(f"{given}: {reason}. Choose another name.")


def resolved(path: str | Path, given: str) -> tuple[Path, bool]:
    """Return where an output leads, and whether it is a stream (device, pipe, open file), written to directly.

    `given` is the path as the user gave it, with its option, for the error's text.
    """
    try:
        place = _followed(Path(path))
        number = descriptor(place)
        mode = stat.S_IFREG | stat.S_IWUSR
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # Path.exists() also ignores names too long
            mode = place.stat().st_mode
        fault = _fault(place, mode, number)
    except OSError as error:
        raise UsageError(f"{given}: {error.strerror}. Give another name.") from error
    if str(path) == "" or str(path).endswith("/"):
        fault = " is the name of a folder, or none. Give the name of a file."
    if fault:
        raise UsageError(f"{given or repr(path)}{fault}")
    return place, number is not None or not stat.S_ISREG(mode)


def _fault(place: Path, mode: int, number: int | None) -> str:
    """Return why nothing can be written to a place of a mode, or to an open file; "" if something can."""
    if number is not None:
        is_read = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        return " is open for reading only. Give another name." if is_read else ""
    if stat.S_ISDIR(mode):
        return " is a directory. Give the name of a file in it."
    parent = place.absolute().parent
    if not parent.is_dir():
        what = "is no folder" if os.path.lexists(parent) else "is not there. Make it first"
        return f": the folder {place.parent} {what}."
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        return " is a disk or a socket. Give the name of a file."
    # A file is replaced, which its folder must allow; that nobody may write it says that it should stay.
    if not (mode & 0o222 if stat.S_ISREG(mode) else os.access(place, os.W_OK)):
        return " is write-protected. Give another name."
    return ""


def _followed(path: Path) -> Path:
    """Return the target of symbolic links, existing or not; links to an open file of this process are not followed."""
    for _ in range(40):  # the limit of Linux
        if descriptor(path) is not None or not path.is_symlink():
            return path
        path = path.parent / os.readlink(path)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def descriptor(path: Path) -> int | None:
    """Return the number of the open file that a path such as /dev/fd/3 names, or None."""
    is_one = (
        path.name.isdecimal() and len(path.name) < 10 and os.path.realpath(path.parent) == f"/proc/{os.getpid()}/fd"
    )
    return int(path.name) if is_one else None


def is_same_file(path: str | Path, name: str | Path) -> bool:
    """Return whether an output path is a regular file and is the input ``name``, ``-`` for standard input."""
    try:
        ours = os.stat(path)
        theirs = os.fstat(sys.stdin.fileno()) if str(name) == "-" and sys.stdin else os.stat(name)
    except (OSError, ValueError):  # a missing file is no input that could be lost
        return False
    return stat.S_ISREG(ours.st_mode) and os.path.samestat(ours, theirs)


def check_takes_files(folder: Path, given: str) -> None:
    """Refuse an existing folder in which no file can be created; `given` is the output as the user gave it."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{given}: cannot write in {folder}: {error.strerror}. Choose another place.") from error
