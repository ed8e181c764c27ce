"""Text files, read strictly, and outputs that are whole or not there."""

import codecs
import contextlib
import os
import sys
import tempfile
from pathlib import Path

import regex

from posnet_fairseq.errors import UsageError

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


def check_place(path, option=""):
    """Refuse a path where no file can be written. Commands do it before their work, not after.

    Args:
        path: of the file.
        option: that it was given with, for the error's text.

    Raises:
        UsageError: it is a directory, or its directory is not there.
    """
    path, given = Path(path), f"{option} {path}".strip()
    if path.is_dir():
        raise UsageError(f"{given} is a directory. Give the name of a file in it.")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{given}: the folder {path.parent} is not there. Make it first.")


def check_folder(folder):
    """Make the folder of ``--out``, or refuse a place where no file can be written. Done before the work, not after.

    Raises:
        UsageError: it is a file, or cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"--out {folder}: {error.strerror}. Choose another folder.") from error


@contextlib.contextmanager
def replacing(path):
    """A temporary path beside `path` that takes its place when the block ends well, and else is removed."""
    path = Path(path)
    check_place(path)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}. Choose another place.") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_lines(path, lines):
    """Write lines to a file, all of them or none."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)
