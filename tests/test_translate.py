import random

import pytest

from posnet_fairseq.inference.translator import batches_by_length


@pytest.mark.parametrize("max_tokens", [1, 10, 50, 10**6])
def test_batches_hold_every_index_once_and_few_tokens(max_tokens):
    generator = random.Random(1)
    lengths = [generator.randint(1, 30) for _ in range(200)]
    batches = batches_by_length(lengths, max_tokens)
    assert sorted(index for batch in batches for index in batch) == list(range(200))
    for batch in batches:
        assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= max_tokens


def test_no_sentences_no_batches():
    assert batches_by_length([], 100) == []
