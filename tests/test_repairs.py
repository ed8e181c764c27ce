"""Repairs of fairseq."""

import numpy as np
import torch
from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder, index_file_path

from posnet_fairseq.fairseq_plugin import repairs


def test_binary_files_of_several_workers_may_have_more_than_2_gib(tmp_path):
    """Only the index is made of this size: it says where each sentence begins."""
    repairs.merge_large_indexes()
    sizes = np.array([2**30, 2**30, 5], dtype=np.int32)
    with MMapIndexedDataset.Index.writer(index_file_path(str(tmp_path / "part")), np.uint16) as index:
        index.write([int(size) for size in sizes])
    (tmp_path / "part.bin").touch()
    builder = MMapIndexedDatasetBuilder(str(tmp_path / "all.bin"), dtype=np.uint16)
    builder.add_item(torch.tensor([1, 2, 3]))
    builder.merge_file_(str(tmp_path / "part"))
    builder.finalize(str(tmp_path / "all.idx"))
    merged = MMapIndexedDataset.Index(str(tmp_path / "all.idx"))
    assert merged.sizes.tolist() == [3, 2**30, 2**30, 5]
    assert merged._pointers.tolist() == [0, 6, 6 + 2**31, 6 + 2**32]
