"""Text files, read strictly, and outputs, files and folders, that are either complete or absent."""

import argparse
import codecs
import contextlib
import fcntl
import io
import itertools
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import regex

from posnet_fairseq.shared.compressed import damage_refused, decompressing
from posnet_fairseq.shared.errors import UsageError, unreadable, visible
from posnet_fairseq.shared.failures import DISK_FULL
from posnet_fairseq.shared.output_paths import check_takes_files, is_same_file, resolved, stream_target

# White space, control characters, and characters that Unicode defines as invisible, such as zero-width spaces, soft
# hyphens and byte order marks.
_BLANK = regex.compile(r"[\s\p{Cc}\p{Default_Ignorable_Code_Point}]*")

SMALL = 2**26  # bytes of a file of settings or words, at most
LARGE = 2**32  # bytes of a report at most, which has the scores of every line
_LONGEST = 2**26  # bytes of a line; what never ends would fill the memory


def is_blank(line: str) -> bool:
    """Return whether a line is empty or has only white space and invisible characters."""
    return _BLANK.fullmatch(line) is not None


def refuse_half_characters(name: str, *texts: str) -> None:
    """Refuse texts, given by an argument, that cannot be written in UTF-8."""
    for text in texts:
        if half := regex.search(r"\p{Cs}", text):
            raise UsageError(f"{name} has half of a surrogate pair, {half[0]!r}, which UTF-8 does not have.")


@contextlib.contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn every OSError of a block that reads a file into a UsageError with the file and the cause."""
    try:
        yield
    except OSError as error:
        raise unreadable(path, error) from error


def check_file(path: str | Path) -> None:
    """Refuse what is no regular file that may be read. Some libraries then say that it is missing."""
    path = Path(path)
    with reading(path):
        if path.is_dir():
            raise UsageError(f"{path} is a directory. Give a file in it.")
        if not path.is_file():
            what = "it is no regular file" if path.exists() else "there is no such file"
            raise UsageError(f"{path}: {what}. Check the path, or copy it again.")
        open(path, "rb").close()


@contextlib.contextmanager
def utf8_name(path: str | Path) -> Iterator[str]:
    """Provide a name of a file for libraries that open files by names in UTF-8 only, as safetensors does."""
    if has_utf8_name(path):
        yield os.fspath(path)
    else:
        with open(path, "rb") as file:
            yield f"/dev/fd/{file.fileno()}"


def has_utf8_name(path: str | Path) -> bool:
    """Return whether a path is text in UTF-8, and not only in the user's locale, or no text."""
    return os.fspath(path).encode(errors="replace") == os.fsencode(path)


def read_small(path: str | Path, most: int = SMALL, pipes: bool = False) -> bytes:
    """Return the content of a file of at most `most` bytes; with `pipes` also :data:`SMALL` of another program's."""
    if not pipes:
        check_file(path)
    with reading(path), open(path, "rb") as file:
        most = min(most, max(os.fstat(file.fileno()).st_size, SMALL))  # for so many bytes memory is taken
        content = file.read(most + 1)
    _check_size(path, len(content), most)
    return content


def _check_size(name: object, size: int, most: int) -> None:
    if size > most:
        raise UsageError(f"{name} has more than {most:,} bytes, which no file of its kind has. Take another one.")


def read_lines(path: str | Path, small: bool = False) -> list[str]:
    """Return the lines of a text, see :func:`iterate_lines`; with `small` refuse what never ends, such as a device."""
    return list(iterate_lines(path, SMALL if small else None))


def iterate_lines(path: str | Path, most: int | None = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, or of standard input for ``-``, without line ends, as they are asked for.

    Only "\\n" ends a line (str.splitlines would also split at U+2028, vertical tabs and other characters of real
    text). A "\\r" in front of it is dropped, as is a byte order mark. Files of gzip, bzip2 and xz are decompressed.

    Raises:
        UsageError: the file is missing, damaged, of another format, is not UTF-8, or has NUL bytes, a line of more than
            64 MiB, or more bytes than `most`.
    """
    name = input_name(path)
    offset = 0  # of the line, in bytes
    with reading(name), damage_refused(name), contextlib.ExitStack() as stack:
        file = sys.stdin.buffer if str(path) == "-" else stack.enter_context(open(path, "rb"))
        content = decompressing(file, name)
        for number in itertools.count(1):
            data = content.readline(_LONGEST)
            if not data:
                return
            if len(data) == _LONGEST:
                raise UsageError(f"{name}: line {number} has {_LONGEST:,} bytes or more. Break it into sentences.")
            line = decoded(data, name, number, offset)
            offset += len(data)
            if most is not None:
                _check_size(name, offset, most)
            yield line.removesuffix("\n").removesuffix("\r")


def input_name(path: str | Path) -> str:
    """Return what an input is called; refuse ``-``, standard input, where that is closed."""
    if str(path) == "-" and sys.stdin is None:
        raise UsageError("standard input is closed. Give a file, or pipe the text in.")
    return "standard input" if str(path) == "-" else str(path)


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """Return the last parts of each path, as few as make all names unique; the same number for all paths."""
    for depth in range(1, max((len(path.parts) for path in paths), default=1) + 1):
        names = [str(Path(*path.parts[-depth:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def decoded(data: bytes | bytearray, name: object, line: int = 1, offset: int = 0) -> str:
    """Return text in UTF-8 without its byte order mark; it begins at a line and an offset of the file `name`."""
    try:
        text = data.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        # Python counts behind a byte order mark.
        start = error.start + (3 if line == 1 and data.startswith(codecs.BOM_UTF8) else 0)
        line += data.count(b"\n", 0, start)
        encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "latin1"
        raise UsageError(
            f"{name} is not UTF-8: line {line} has an invalid byte at offset {offset + start} of the file. "
            f"Convert it first; if it is in {encoding}, with iconv -f {encoding} -t utf-8."
        ) from error
    if (place := text.find("\0")) >= 0:
        line += text.count("\n", 0, place)
        raise UsageError(
            f"{name} has a NUL byte in line {line}, so it is no text in UTF-8 (UTF-16 has them). Convert it first, for "
            "instance with iconv -f utf-16 -t utf-8, or remove them with tr -d '\\0'."
        )
    return text


def cache_folder() -> Path:
    """Return the folder for files that posnet can make or download again: temporary if this user has no home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "posnet"
    except RuntimeError:
        return Path(tempfile.gettempdir(), f"posnet-{os.getuid()}")


def path_text(text: str) -> str:
    """Return a path of a command line unchanged, unless it is empty or has a NUL; a ``type`` of argparse."""
    if not text or "\0" in text:  # empty as with an unset shell variable
        raise argparse.ArgumentTypeError(f"{text!r} is no path. Give one.")
    return text


def a_path(text: str) -> Path:
    """Return a path of a command line as a :class:`pathlib.Path`, see :func:`path_text`; a ``type`` of argparse."""
    return Path(path_text(text))


def check_place(path: str | Path, option: str = "", inputs: Iterable[str | Path] = ()) -> None:
    """Check that a file can be written to a path, which was given with an option. Commands call it before their work.

    None of the inputs, ``-`` for standard input, may be overwritten under any name.
    """
    given = f"{option} {path}".strip()
    for name in inputs:
        if is_same_file(path, name):
            raise UsageError(f"{given} is the same file as {input_name(name)}, which would be lost. Give another name.")
    place, is_stream = resolved(path, given)
    if not is_stream:
        check_takes_files(place.parent, given)


def check_folder(folder: str | Path, option: str = "--out") -> None:
    """Check that a folder of files can be made or exists. Commands call it before their work; nothing is made."""
    given, folder = f"{option} {folder}", Path(folder)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.scandir(folder).close()
    except OSError as error:
        raise UsageError(f"{given}: {error.strerror}. Choose another folder.") from error
    check_takes_files(next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path)), given)


def check_stdout() -> None:
    """Check that standard output can be written. Commands that print their result call it before their work."""
    problem = "closed" if sys.stdout is None else ""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # it is not always a file
        if fcntl.fcntl(sys.stdout.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            problem = "open for reading only"
    if problem:
        raise UsageError(f"standard output is {problem}, so the result would be lost. Redirect it to a file.")


@contextlib.contextmanager
def writing(path: object, place: str | Path = "") -> Iterator[None]:
    """Turn every OSError of a block that writes an output into a UsageError with the output and the cause.

    Errors of files that are not at or below `place` are left alone, as is that of a pipe without a reader.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename and not (place and str(error.filename).startswith(str(place))):
            raise
        is_full = error.errno in DISK_FULL
        why = "the disk is full. Make room, and run it again" if is_full else f"{error.strerror}. Choose another place"
        raise UsageError(f"cannot write {path}: {why}.") from error


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Provide a temporary path whose file replaces ``path`` when the block ends without an error.

    After an error the temporary file is removed. Symbolic links are followed and kept, as are the permissions of a file
    that is replaced; its other names (hard links) keep the old content. Devices, pipes and open files (/dev/fd/3) are
    written to directly.

    Raises:
        UsageError: nothing can be written there, or the disk is full.
    """
    place, is_stream = resolved(path, str(path))
    temporary = _temporary(Path(tempfile.gettempdir()) if is_stream else place.parent, place.name)
    with writing(path, temporary):
        try:
            temporary.touch(exist_ok=False)
            if not is_stream and place.exists():
                temporary.chmod(stat.S_IMODE(place.stat().st_mode))
            yield temporary
            if not is_stream:
                temporary.replace(place)
                return
            if sys.stdout is not None:
                sys.stdout.flush()  # it may be the same file, and what was printed comes first
            with open(temporary, "rb") as source, open(stream_target(place), "wb") as target:
                shutil.copyfileobj(source, target)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Provide a temporary folder, which gets its name when the block ends without an error and is removed after one."""
    temporary = _temporary(folder.absolute().parent, folder.name)
    with writing(folder, temporary):
        try:
            temporary.mkdir()
            yield temporary
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _temporary(folder: Path, name: str) -> Path:
    """Return a new name in a folder. The name itself may have the greatest length that the file system allows."""
    return folder / f".{name[:40]}.{os.urandom(6).hex()}"


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Write lines to a file, all of them or none."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)


def print_lines(lines: Iterable[str]) -> None:
    """Write lines to standard output in UTF-8, at once."""
    check_stdout()
    # A file or another program gets the text unchanged; a terminal would execute control characters in it.
    shown = map(visible, lines) if sys.stdout.isatty() else lines
    with writing("standard output"):
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        sys.stdout.writelines(line + "\n" for line in shown)
        sys.stdout.flush()
