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

_STREAMS = {"/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}


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

    Raises:
        UsageError: the path cannot be that of an output.
    """
    place = Path(_STREAMS.get(str(path), path))
    try:
        if (number := descriptor(place)) is not None:
            if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                raise OSError(errno.EBADF, "it is open for reading only")
            return place, True
        if place.is_symlink():
            place = Path(os.path.realpath(place))
        mode = stat.S_IFREG | stat.S_IWUSR
        with contextlib.suppress(FileNotFoundError):
            mode = place.stat().st_mode
        if stat.S_ISDIR(mode) or str(path).endswith("/"):
            raise OSError(errno.EISDIR, "it is a directory")
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
            raise OSError(errno.EINVAL, "it is a disk or a socket")
        # A file is replaced, which its folder must allow; that nobody may write it says that it should stay.
        if not (mode & 0o222 if stat.S_ISREG(mode) else os.access(place, os.W_OK)):
            raise OSError(errno.EACCES, "it is write-protected")
    except OSError as error:
        raise UsageError(f"{given}: {error.strerror}. Give another name of a file.") from error
    return place, not stat.S_ISREG(mode)


def descriptor(path: Path) -> int | None:
    """Return the number of the open file that a path such as /dev/fd/3 names, or None."""
    is_one = (
        path.name.isdecimal() and len(path.name) < 10 and os.path.realpath(path.parent) == f"/proc/{os.getpid()}/fd"
    )
    return int(path.name) if is_one else None


def stream_target(path: Path) -> Path | int:
    """Return what ``open`` opens to write to a stream: an open file is written to at its current position."""
    number = descriptor(path)
    return path if number is None else os.dup(number)


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
