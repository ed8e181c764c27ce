"""Lengths of the sentences of binarized data, of all formats of fairseq-preprocess."""

from pathlib import Path

import numpy as np
from fairseq.data.data_utils import load_indexed_dataset

from posnet_fairseq.text.binary_format import check


def sentence_sizes(path: str | Path) -> np.ndarray:
    """(N,) lengths in tokens of the sentences of one side of a set, end symbols included.

    Args:
        path: of the two files, without their endings .idx and .bin.

    Raises:
        UsageError: one of the files is damaged, cut short, of other data, or a directory.
    """
    sizes, _ = check(path)
    if sizes is not None:
        return sizes
    dataset = load_indexed_dataset(str(path), combine=True)  # its sizes are gone when it is
    return dataset.sizes.copy()
