"""fairseq's memory-mapped binary form of a text, read and written without fairseq."""

import struct
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_file

_MAPPED, _OTHERS = b"MMIDIDX\0\0", (b"TNTIDX\0\0", b"HUFFIDX\0")  # first bytes of indexes of fairseq's formats
_PART = 2**20  # sentences that are checked at once: of a large corpus, all would take a gigabyte
# Types of numbers by their code in an index; two codes mean the same.
_TYPES = {
    **{1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.float64, 7: np.float64},
    **{8: np.uint16, 9: np.uint32, 10: np.uint64},
}
_SETS = {"train": "training", "valid": "validation"}
_MOST_IN_16_BITS = 65_500  # entries of a dictionary whose ids fairseq writes as 16-bit numbers
_HEADER = 26  # bytes of the memory-mapped format: name, version, type of numbers, number of sentences


def lengths_and_type(path: str | Path) -> tuple[np.ndarray | None, np.dtype | None]:
    """Return (N,) lengths of sentences in tokens, end symbol included, and the type of the ids, of a checked file pair.

    Index and data are checked against each other. Old formats do not tell lengths and type: both are None.
    """
    index, data = Path(f"{path}.idx"), Path(f"{path}.bin")
    for file in filter(Path.exists, (index, data)):
        check_file(file)
    with index.open("rb") as content:
        header = content.read(_HEADER)
    if header.startswith(_OTHERS):
        return None, None
    kind = _TYPES.get(int.from_bytes(header[17:18], "little"))
    sentences = int.from_bytes(header[18:], "little")
    whole = header.startswith(_MAPPED) and kind is not None and index.stat().st_size == _HEADER + 12 * sentences
    sizes = np.fromfile(index, np.int32, sentences if whole else 0, offset=_HEADER)
    starts = np.memmap(index, np.int64, "r", _HEADER + 4 * sentences) if whole and sentences else sizes
    width, expected = np.dtype(kind).itemsize, 0
    for first in range(0, len(sizes), _PART):
        part, found = sizes[first : first + _PART], starts[first : first + _PART]
        ends = expected + width * np.cumsum(part, dtype=np.int64)
        whole &= bool((part >= 0).all()) and np.array_equal(found, ends - width * part.astype(np.int64))
        expected = int(ends[-1])
    if not whole:
        raise UsageError(f"{index} is damaged. Binarize the text again.")
    if data.stat().st_size != expected:
        raise UsageError(
            f"{data} has {data.stat().st_size:,} bytes, by its index {index.name} it should have {expected:,}: one of "
            "them is cut short, damaged or of other data. Binarize the text again."
        )
    return sizes, np.dtype(kind)


def read_tokens(path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids of all sentences of one side of a set, (T,), and the lengths of the sentences, (N,).

    Every sentence ends with the end symbol. The ids are read from the disk when they are used.
    """
    sizes, kind = lengths_and_type(path)
    if sizes is None or kind is None or kind.kind == "f":
        raise UsageError(
            f"{path}.idx is not of the memory-mapped format. Binarize the text again, with --dataset-impl mmap."
        )
    tokens = np.memmap(f"{path}.bin", kind, "r") if sizes.any() else np.zeros(0, kind)
    return tokens, sizes


def write_binarized(stem: Path, parts: Iterable[Sequence[Sequence[int]]], words: int) -> None:
    """Write one side of a set, ``STEM.bin`` and ``STEM.idx``, as fairseq-preprocess does.

    Args:
        stem: path without ending.
        parts: of the set: token ids of sentences, each with the end symbol.
        words: entries of the dictionary.
    """
    kind = np.dtype(np.uint16 if words < _MOST_IN_16_BITS else np.uint32)
    sizes = [np.zeros(0, np.int32)]
    with Path(f"{stem}.bin").open("wb") as data:
        for sentences in parts:
            sizes.append(np.fromiter(map(len, sentences), np.int32, len(sentences)))
            # Not by tofile: where the disk is full, it raises an error without a number, or none.
            data.write(np.fromiter(chain.from_iterable(sentences), kind, int(sizes[-1].sum())).data)
    lengths = np.concatenate(sizes)
    ends = kind.itemsize * np.cumsum(lengths, dtype=np.int64)
    code = next(code for code, of_code in _TYPES.items() if of_code == kind)
    with Path(f"{stem}.idx").open("wb") as index:
        index.write(_MAPPED + struct.pack("<QBQ", 1, code, len(lengths)))
        index.write(lengths.data)
        index.write((ends - kind.itemsize * lengths.astype(np.int64)).data)


def binarized_set(folder: Path, split: str, languages: tuple[str | None, str | None]) -> Path:
    """Return what the paths of a binarized set begin with, such as ``folder/train.en-de``, in either direction."""
    source, target = languages
    for pair in (f"{source}-{target}", f"{target}-{source}") if source and target else ():
        stem = folder / f"{split}.{pair}"
        if all(Path(f"{stem}.{language}.{end}").exists() for language in languages for end in ("idx", "bin")):
            return stem
        if all(Path(f"{stem}.{language}").is_file() for language in languages):
            raise UsageError(
                f"{folder} has its {_SETS.get(split, split)} set as text (--dataset-impl raw), which is not binarized. "
                "Run fairseq-preprocess without that option, and give its directory."
            )
    raise UsageError(
        f"{folder} holds no binarized {_SETS.get(split, split)} set ({split}.SRC-TGT.SRC.idx and .bin). "
        "Give a directory of fairseq-preprocess that has it."
    )
