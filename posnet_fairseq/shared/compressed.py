"""Files that may be compressed."""

import bz2
import contextlib
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from posnet_fairseq.shared.errors import UsageError

# By the first bytes of a file. The pattern of bzip2 is long because a text might begin with BZh.
_OPENERS: dict[bytes, Callable[..., Any]] = {
    rb"\x1f\x8b\x08": gzip.open,
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": bz2.open,
    rb"\xfd7zXZ\x00": lzma.open,
}
_REFUSED = {
    rb"PK\x03\x04": "a zip archive, as files of Word and Excel are",
    rb"7z\xbc\xaf\x27\x1c": "a 7z archive",
    rb"\x28\xb5\x2f\xfd": "compressed by zstd",
    rb"%PDF-\d": "a PDF document",
    rb"\{\\rtf\d": "an RTF document",
}
_COMPRESSED = (".gz", ".bz2", ".xz")
_MARKUP = (".sgm", ".sgml", ".xml")


def opener_of(start: bytes, name: object) -> Callable[..., Any] | None:
    """Return the function that opens a gzip, bzip2 or xz file, by its first bytes, None for text; refuse others."""
    for magic, what in _REFUSED.items():
        if re.match(magic, start):
            raise UsageError(f"{name} is {what}, not plain text. Give the text in it as a plain text file in UTF-8.")
    return next((opener for magic, opener in _OPENERS.items() if re.match(magic, start)), None)


def decompressing(file: IO[bytes], name: object) -> IO[bytes]:
    """Return the content of an open file, which is decompressed as it is read if it is of gzip, bzip2 or xz."""
    buffered: Any = file if hasattr(file, "peek") else io.BufferedReader(file)
    opener = opener_of(buffered.peek(10), name)
    return buffered if opener is None else opener(buffered, "rb")


@contextlib.contextmanager
def damage_refused(name: object) -> Iterator[None]:
    """Turn errors of decompressing a file into a sentence with its name."""
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # of the system
            raise
        raise UsageError(
            f"{name} is compressed and damaged ({error or type(error).__name__}). Copy it again."
        ) from error


@contextlib.contextmanager
def open_binary(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading; gzip, bzip2 and xz are decompressed, whatever the file's name."""
    with open(path, "rb") as file, decompressing(file, path) as content:
        yield content


def has_compressed_name(path: Path) -> bool:
    """Return whether a path ends in .gz, .bz2 or .xz."""
    return path.suffix in _COMPRESSED


def plain_suffix(path: Path) -> str:
    """Return the suffix of a path without the endings of its compression and of SGML: ``.en`` for ``a.en.sgm.gz``."""
    if has_compressed_name(path):
        path = path.with_suffix("")
    return (path.with_suffix("") if path.suffix in _MARKUP else path).suffix
