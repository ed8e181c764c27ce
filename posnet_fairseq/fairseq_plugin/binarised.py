"""Binarised data of fairseq-preprocess: checks that it is whole, and lengths of its sentences."""

from pathlib import Path

import numpy as np
from fairseq.data.data_utils import load_indexed_dataset
from fairseq.data.indexed_dataset import _code_to_dtype

from posnet_fairseq.shared.errors import UsageError

_MAPPED, _OTHERS = b"MMIDIDX\0\0", (b"TNTIDX\0\0", b"HUFFIDX\0")  # first bytes of indexes of fairseq's formats
_PART = 2**20  # sentences that are checked at once: of a large corpus, all would take a gigabyte
_HEADER = 26  # bytes of the memory-mapped format: name, version, type of numbers, number of sentences


def check(path: str | Path) -> np.ndarray | None:
    """Lengths of the sentences of one side of a set, whose index and data file are checked against each other.

    Args:
        path: of the two files, without their endings .idx and .bin.

    Returns:
        (N,) lengths in tokens, the end symbol included; None where the format, an old one, does not tell them.

    Raises:
        UsageError: one of the files is damaged, cut short, of other data, or a directory.
    """
    index, data = Path(f"{path}.idx"), Path(f"{path}.bin")
    for file in (index, data):
        if file.is_dir():
            raise UsageError(f"{file} is a directory, not a file of binarised text. Binarise the text again.")
    with index.open("rb") as content:
        header = content.read(_HEADER)
    if header.startswith(_OTHERS):
        return None
    kind = _code_to_dtype.get(int.from_bytes(header[17:18], "little"))
    sentences = int.from_bytes(header[18:], "little")
    if not (header.startswith(_MAPPED) and kind and index.stat().st_size == _HEADER + 12 * sentences):
        raise UsageError(f"{index} is damaged. Binarise the text again.")
    sizes = np.fromfile(index, np.int32, sentences, offset=_HEADER)
    starts = np.memmap(index, np.int64, "r", _HEADER + 4 * sentences) if sentences else sizes
    width, expected = np.dtype(kind).itemsize, 0
    for first in range(0, sentences, _PART):
        part = sizes[first : first + _PART]
        ends = expected + width * np.cumsum(part, dtype=np.int64)
        if (part < 0).any() or not np.array_equal(starts[first : first + _PART], ends - width * part.astype(np.int64)):
            raise UsageError(f"{index} is damaged. Binarise the text again.")
        expected = int(ends[-1])
    if data.stat().st_size != expected:
        raise UsageError(
            f"{data} has {data.stat().st_size:,} bytes, by its index {index.name} it should have {expected:,}: one of "
            "them is cut short, damaged or of other data. Binarise the text again."
        )
    return sizes


def sentence_sizes(path: str | Path) -> np.ndarray:
    """(N,) lengths in tokens of the sentences of one side of a set, end symbols included.

    Args:
        path: of the two files, without their endings .idx and .bin.

    Raises:
        UsageError: one of the files is damaged, cut short, of other data, or a directory.
    """
    sizes = check(path)
    if sizes is not None:
        return sizes
    dataset = load_indexed_dataset(str(path), combine=True)  # its sizes are gone when it is
    return dataset.sizes.copy()


def longest_sentences(folder: str | Path) -> dict[str, int]:
    """Length of the longest sentence in each side of each set except the training set.

    Args:
        folder: directory that fairseq-preprocess wrote.

    Returns:
        lengths in tokens by name of file without ending, such as ``test.en-de.en``.
    """
    sets = sorted(path.with_suffix("") for path in Path(folder).glob("*.*-*.*.idx"))
    sizes = {path.name: sentence_sizes(path) for path in sets if not path.name.startswith("train")}
    return {name: int(max(of_set)) for name, of_set in sizes.items() if len(of_set)}
