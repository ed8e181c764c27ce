"""Sizes of sentences in what fairseq-preprocess wrote."""

from pathlib import Path

from fairseq.data.data_utils import load_indexed_dataset

from posnet_fairseq.errors import UsageError


def sentence_sizes(path):
    """Tokens of every sentence of one side of a set, end symbols counted, an array.

    Args:
        path: of the two files, without their endings .idx and .bin.

    Raises:
        UsageError: the index is damaged.
    """
    index = Path(f"{path}.idx")
    with index.open("rb") as file:
        header = file.read(26)  # of fairseq's memory-mapped format: name, version, type of numbers, number of sentences
    sentences = int.from_bytes(header[18:], "little")
    if not header or header.startswith(b"MMIDIDX") != (index.stat().st_size == 26 + 12 * sentences):
        raise UsageError(f"{index} is damaged. Binarise the text again.")
    dataset = load_indexed_dataset(str(path), combine=True)  # its sizes are gone when it is
    return dataset.sizes.copy()


def longest_sentences(folder):
    """The most tokens that a sentence has in each side of each set but the training set.

    Args:
        folder: what fairseq-preprocess wrote.

    Returns:
        dict from a file's name without ending, such as ``test.en-de.en``, to the number.
    """
    sets = sorted(path.with_suffix("") for path in Path(folder).glob("*.*-*.*.idx"))
    sizes = {path.name: sentence_sizes(path) for path in sets if not path.name.startswith("train")}
    return {name: int(max(of_set)) for name, of_set in sizes.items() if len(of_set)}
