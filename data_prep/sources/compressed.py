"""Files that may be compressed."""

import bz2
import gzip
import lzma
import re
import zlib

# What reading a file that is cut short or damaged raises, besides OSError without a file's name.
DAMAGED = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)

# By their first bytes. bzip2's are as many because a text might begin with BZh.
_OPENERS = {
    rb"\x1f\x8b\x08": gzip.open,
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": bz2.open,
    rb"\xfd7zXZ\x00": lzma.open,
}
_ENDINGS = (".gz", ".bz2", ".xz")


def open_binary(path):
    """Open a file for reading; what gzip, bzip2 or xz have compressed is decompressed, whatever its name."""
    with open(path, "rb") as file:
        begin = file.read(10)
    openers = [opener for magic, opener in _OPENERS.items() if re.match(magic, begin)]
    return openers[0](path, "rb") if openers else open(path, "rb")


def has_compressed_name(path):
    """Whether a path ends as compressed files do."""
    return path.suffix in _ENDINGS


def plain_suffix(path):
    """How the name ends without its compression: ``.en`` of ``a.en.gz``."""
    return path.with_suffix("").suffix if has_compressed_name(path) else path.suffix
