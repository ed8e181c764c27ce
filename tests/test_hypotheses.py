"""What beam search's order of hypotheses means for their sentences."""

import pytest
import torch

from posnet_fairseq.mixers.bases.decoding_state import order_of_sentences


@pytest.mark.parametrize(
    ("order", "before", "expected"),
    [
        ([0, 0, 0, 1, 1, 1], (2, 1), (None, 3)),  # the beginning of a search
        ([2, 0, 1, 5, 5, 3], (2, 3), (None, 3)),
        ([5, 3, 3], (2, 3), ([1], 3)),  # the first sentence has ended
        ([1, 0], (2, 1), ([1, 0], 1)),
        ([0, 3, 1, 2, 4, 5], (2, 3), ([0, 1, 0, 0, 1, 1], 1)),  # hypotheses of two sentences are mixed
        ([0, 1, 2, 3], (2, 3), ([0, 0, 0, 1], 1)),  # one sentence has lost hypotheses
        ([], (2, 3), ([], 3)),
    ],
)
def test_order_of_sentences(order, before, expected):
    found, hypotheses = order_of_sentences(torch.tensor(order, dtype=torch.long), *before)
    assert (None if found is None else found.tolist(), hypotheses) == expected
