"""Sentences for failures of torch."""

import pytest
import torch

from posnet_fairseq.shared.failures import explain


@pytest.mark.parametrize("make", [lambda: torch.empty(2**60), lambda: bytearray(2**60)])
def test_too_little_memory_is_said(make):
    with pytest.raises((RuntimeError, MemoryError)) as error:
        make()
    assert explain(error.value) == "there is not enough memory for this. Give smaller sizes, lengths or batches."
