"""Sentences for failures of torch."""

import pytest
import torch

from posnet_fairseq.shared.failures import explain
from posnet_fairseq.shared.records import digest


def test_a_file_that_cannot_be_read_on_is_named(tmp_path):
    """The system names no file when reading fails, as that of a process's memory does at its beginning."""
    (tmp_path / "record").symlink_to("/proc/self/mem")
    with pytest.raises(OSError, match="Input/output error") as error:
        digest(tmp_path / "record", "sha256")
    assert explain(error.value) == f"{tmp_path}/record: Input/output error. Check the disk, or copy the file again."


@pytest.mark.parametrize("make", [lambda: torch.empty(2**60), lambda: bytearray(2**60)])
def test_too_little_memory_is_said(make):
    with pytest.raises((RuntimeError, MemoryError)) as error:
        make()
    assert explain(error.value) == "there is not enough memory for this. Give smaller sizes, lengths or batches."
