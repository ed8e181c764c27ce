"""Files that may be compressed."""

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

# Exceptions of reading a file that is cut short or damaged, besides an OSError that names no file.
DAMAGED = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)

# By the first bytes of a file. The pattern of bzip2 is long because a text might begin with BZh.
_OPENERS: dict[bytes, Callable[..., Any]] = {
    rb"\x1f\x8b\x08": gzip.open,
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": bz2.open,
    rb"\xfd7zXZ\x00": lzma.open,
}
_ENDINGS = (".gz", ".bz2", ".xz")


def open_binary(path: Path) -> IO[bytes]:
    """Open a file for reading; gzip, bzip2 and xz are decompressed, whatever the file's name."""
    with open(path, "rb") as file:
        start = file.read(10)
    for magic, opener in _OPENERS.items():
        if re.match(magic, start):
            return opener(path, "rb")
    return open(path, "rb")


def has_compressed_name(path: Path) -> bool:
    """Whether a path ends in .gz, .bz2 or .xz."""
    return path.suffix in _ENDINGS


def plain_suffix(path: Path) -> str:
    """Suffix of a path without the ending of its compression: ``.en`` for ``a.en.gz``."""
    return path.with_suffix("").suffix if has_compressed_name(path) else path.suffix
