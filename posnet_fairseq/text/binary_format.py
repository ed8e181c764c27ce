"""Binarized data of fairseq-preprocess, read without fairseq: whether it is whole, its tokens and lengths."""

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
_HEADER = 26  # bytes of the memory-mapped format: name, version, type of numbers, number of sentences


def check(path: str | Path) -> tuple[np.ndarray | None, np.dtype | None]:
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
    sizes, kind = check(path)
    if sizes is None or kind is None or kind.kind == "f":
        raise UsageError(
            f"{path}.idx is not of the memory-mapped format. Binarize the text again, with --dataset-impl mmap."
        )
    tokens = np.memmap(f"{path}.bin", kind, "r") if sizes.any() else np.zeros(0, kind)
    return tokens, sizes


def binarized_set(folder: Path, split: str, languages: tuple[str | None, str | None]) -> Path:
    """Return what the paths of a binarized set begin with, such as ``folder/train.en-de``, in either direction."""
    source, target = languages
    for pair in (f"{source}-{target}", f"{target}-{source}") if source and target else ():
        stem = folder / f"{split}.{pair}"
        if all(Path(f"{stem}.{language}.{end}").exists() for language in languages for end in ("idx", "bin")):
            return stem
        if all(Path(f"{stem}.{language}").is_file() for language in languages):
            raise UsageError(
                f"{folder} has its {_SETS[split]} set as text (--dataset-impl raw), which is not binarized. Run "
                "fairseq-preprocess without that option, and give its directory."
            )
    raise UsageError(
        f"{folder} holds no binarized {_SETS.get(split, split)} set ({split}.SRC-TGT.SRC.idx and .bin). "
        f"Give a directory of fairseq-preprocess that has it."
    )
