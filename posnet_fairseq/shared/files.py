"""Text files, read strictly, and outputs that are whole or not there."""

import argparse
import codecs
import contextlib
import errno
import fcntl
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

import regex

from posnet_fairseq.shared.errors import UsageError, visible
from posnet_fairseq.shared.failures import DISK_FULL

# White space, control characters, and what Unicode says is drawn as nothing: zero-width spaces, soft hyphens, byte
# order marks and the like.
_BLANK = regex.compile(r"[\s\p{Cc}\p{Default_Ignorable_Code_Point}]*")


def is_blank(line: str) -> bool:
    """Whether a line shows nothing: it is empty, or all of its characters are blanks or have no width."""
    return _BLANK.fullmatch(line) is not None


def refuse_nul(text: str, name: object, line: int = 1) -> None:
    """Refuse text with NUL bytes.

    Args:
        text: of a file, or a part of it.
        name: of the file.
        line: number of the first line of `text`.

    Raises:
        UsageError: there is one; it names the line.
    """
    place = text.find("\0")
    if place >= 0:
        line += text.count("\n", 0, place)
        raise UsageError(
            f"{name} has a NUL byte in line {line}, so it is no text in UTF-8 (UTF-16 has them). Convert it first, for "
            "instance with iconv -f utf-16 -t utf-8, or remove them with tr -d '\\0'."
        )


def read_lines(path):
    """The lines of a UTF-8 file, or of standard input for ``-``, without line ends.

    Only "\\n" ends a line (str.splitlines would also break at U+2028, vertical tabs and others that real text
    holds); a "\\r" in front of it is dropped, as is a byte order mark.

    Raises:
        UsageError: the file is missing, is not UTF-8, or has NUL bytes.
    """
    name = "standard input" if str(path) == "-" else str(path)
    try:
        if str(path) == "-" and sys.stdin is None:
            raise UsageError("standard input is closed. Give a file, or pipe the text in.")
        data = sys.stdin.buffer.read() if str(path) == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}. Check the path.") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Python counts behind a byte order mark.
        start = error.start + (3 if data.startswith(codecs.BOM_UTF8) else 0)
        line = data.count(b"\n", 0, start) + 1
        raise UsageError(
            f"{name} is not UTF-8: line {line} has an invalid byte at offset {start} of the file. "
            "Convert it first, for instance with iconv -t utf-8."
        ) from error
    refuse_nul(text, name)
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_parallel(*paths):
    """The lines of several files that belong together line by line.

    Raises:
        UsageError: they have different numbers of lines; or see :func:`read_lines`.
    """
    files = [read_lines(path) for path in paths]
    if len({len(lines) for lines in files}) > 1:
        counts = ", ".join(f"{path} has {len(lines)} lines" for path, lines in zip(paths, files, strict=True))
        raise UsageError(f"{counts}, but they belong together line by line. Nothing was done; mend the files first.")
    return files


def cache_folder():
    """Where posnet keeps what it can make or download again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "posnet"


def path_text(text: str) -> str:
    """The type of a command line's paths: as given, but not empty, as an unset variable of a shell leaves it.

    Raises:
        argparse.ArgumentTypeError: it is empty, or has a NUL, which no path has.
    """
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is no path. Give one.")
    return text


def a_path(text: str) -> Path:
    """The same as a :class:`pathlib.Path`."""
    return Path(path_text(text))


def check_place(path, option="", inputs=()):
    """Refuse a path where no file can be written. Commands do it before their work, not after.

    Args:
        path: of the file.
        option: that it was given with, for the error's text.
        inputs: paths of files that are read, ``-`` for standard input: none of them may be written, whatever it is
            called here.

    Raises:
        UsageError: it is one of the inputs, a directory, write-protected, or in a folder that is not there or takes no
            files.
    """
    given = f"{option} {path}".strip()
    for name in inputs:
        if _is_same_file(path, name):
            what = "standard input" if str(name) == "-" else name
            raise UsageError(f"{given} is the same file as {what}, which would be lost. Give another name.")
    place, is_stream = _place(path, given)
    if not is_stream:
        _check_takes_files(place.parent, given)


def check_folder(folder, option="--out"):
    """Refuse a place where no folder of files can be made. Done before the work, not after; nothing is made.

    Raises:
        UsageError: it is a file, or cannot be made or written to.
    """
    given, folder = f"{option} {folder}", Path(folder)
    try:
        there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
        if not there.is_dir():
            number = errno.EEXIST if there == folder else errno.ENOTDIR
            raise OSError(number, os.strerror(number))
    except OSError as error:
        raise UsageError(f"{given}: {error.strerror}. Choose another folder.") from error
    _check_takes_files(there, given)


def check_stdout():
    """Refuse to do work whose result would be printed, where standard output is closed.

    Raises:
        UsageError: it is.
    """
    if sys.stdout is None:
        raise UsageError("standard output is closed, so the result would be lost. Redirect it to a file.")


def _check_takes_files(folder, given):
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{given}: cannot write in {folder}: {error.strerror}. Choose another place.") from error


def _is_same_file(path, name):
    """Whether a path to write is a regular file, and that of a name to read."""
    try:
        ours = os.stat(path)
        theirs = os.fstat(sys.stdin.fileno()) if str(name) == "-" and sys.stdin else os.stat(name)
    except (OSError, ValueError):  # what is not there is no input that could be lost
        return False
    return stat.S_ISREG(ours.st_mode) and os.path.samestat(ours, theirs)


def _place(path, given):
    """Where a path leads, and whether that is a stream (device, pipe, open file), which is written to as it is.

    Args:
        path: of an output.
        given: what the user called it.

    Raises:
        UsageError: nothing can be written there.
    """
    try:
        if str(path) == "" or str(path).endswith("/"):
            raise UsageError(f"{given or repr(path)} is the name of a folder, or none. Give the name of a file.")
        place = _followed(Path(path))
        number = _descriptor(place)
        if number is not None:
            if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                raise UsageError(f"{given} is open for reading only. Give another name.")
            return place, True
        mode = place.stat().st_mode if place.exists() else stat.S_IFREG
        parent = place.absolute().parent
        if stat.S_ISDIR(mode):
            raise UsageError(f"{given} is a directory. Give the name of a file in it.")
        if not parent.is_dir():
            what = "is no folder" if os.path.lexists(parent) else "is not there. Make it first"
            raise UsageError(f"{given}: the folder {place.parent} {what}.")
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
            raise UsageError(f"{given} is a disk or a socket. Give the name of a file.")
        # A file is replaced, which its folder must allow; that nobody may write it says that it should stay.
        if place.exists() and not (mode & 0o222 if stat.S_ISREG(mode) else os.access(place, os.W_OK)):
            raise UsageError(f"{given} is write-protected. Give another name.")
    except OSError as error:
        raise UsageError(f"{given}: {error.strerror}. Give another name.") from error
    return place, not stat.S_ISREG(mode)


def _followed(path):
    """What symbolic links lead to, there or not; but no further than to an open file of this process.

    Raises:
        OSError: they lead in a circle.
    """
    for _ in range(40):  # as many as Linux follows
        if _descriptor(path) is not None or not path.is_symlink():
            return path
        path = path.parent / os.readlink(path)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _descriptor(path):
    """The number of an open file that a path such as /dev/fd/3 names, or None."""
    is_one = path.name.isdecimal() and os.path.realpath(path.parent) == f"/proc/{os.getpid()}/fd"
    return int(path.name) if is_one else None


@contextlib.contextmanager
def replacing(path):
    """A temporary path whose file takes the place of `path` when the block ends well, and else is removed.

    Symbolic links are followed and stay; the permissions of a file that is replaced stay, too, its other names (hard
    links) keep the old content. Into devices, pipes and open files (/dev/fd/3) the bytes are written.

    Raises:
        UsageError: nothing can be written there, or the disk is full.
    """
    place, is_stream = _place(path, str(path))
    folder = tempfile.gettempdir() if is_stream else place.parent
    try:
        # The whole name may be as long as a name can be.
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{place.name[:40]}.")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}. Choose another place.") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if is_stream:
            _pour(temporary, place)
        else:
            _rename(temporary, place)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise UsageError(f"cannot write {path}: the disk is full. Make room, and run it again.") from error
        if error.filename or isinstance(error, BrokenPipeError):
            raise
        raise UsageError(f"cannot write {path}: {error.strerror}. Choose another place.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _pour(temporary, place):
    number = _descriptor(place)
    if number is not None and sys.stdout is not None:
        sys.stdout.flush()  # it may be the same file, and what was printed comes first
    with open(temporary, "rb") as source, open(place if number is None else os.dup(number), "wb") as target:
        shutil.copyfileobj(source, target)


def _rename(temporary, place):
    temporary.chmod(stat.S_IMODE(place.stat().st_mode) if place.exists() else 0o666 & ~_umask())
    try:
        temporary.replace(place)
    except OSError as error:
        raise UsageError(f"cannot write {place}: {error.strerror}. Choose another place.") from error


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_lines(path, lines):
    """Write lines to a file, all of them or none."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)


def save_lines(path, lines):
    """Write lines that took long to make, to standard output for ``-``. Where that fails, they are kept elsewhere.

    Args:
        path: of the file.
        lines: a list.

    Raises:
        UsageError: they could not be written; it says where they are.
        BrokenPipeError: nobody reads standard output any more.
    """
    try:
        if str(path) == "-":
            _print_lines(lines)
        else:
            write_lines(path, lines)
    except (UsageError, OSError) as error:
        if str(path) == "-" and isinstance(error, BrokenPipeError):
            raise
        reason = error if isinstance(error, UsageError) else f"standard output could not be written: {error.strerror}."
        raise UsageError(f"{reason} {_rescue(lines, may_print=str(path) != '-')}") from error


def _print_lines(lines):
    check_stdout()
    # A file or another program gets the text as it is; to a terminal, control characters in it would be commands.
    shown = map(visible, lines) if sys.stdout.isatty() else lines
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    sys.stdout.writelines(line + "\n" for line in shown)
    sys.stdout.flush()


def _rescue(lines, may_print):
    """Keep lines that could not be written where they should have been. Returns a sentence that says where they are."""
    for folder in (tempfile.gettempdir(), "/dev/shm"):
        with contextlib.suppress(OSError, UsageError):
            place = Path(tempfile.mkdtemp(dir=folder, prefix="posnet-")) / "lines.txt"
            write_lines(place, lines)
            return f"What was to be written is in {place}."
    if not may_print:
        return "It could not be kept anywhere else either."
    _print_lines(lines)
    return "What was to be written is on standard output instead."
