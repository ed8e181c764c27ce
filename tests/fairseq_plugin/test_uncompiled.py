"""What stands in for fairseq's compiled code gives the same results."""

import importlib.util
import types

import numpy as np
import pytest
import torch
from fairseq.scoring import bleu

from posnet_fairseq.fairseq_plugin import uncompiled
from posnet_fairseq.shared.errors import UsageError

spec = importlib.util.find_spec("fairseq.data.data_utils_fast")
if spec is None or spec.loader is None:
    pytest.skip("this fairseq is not compiled", allow_module_level=True)
from fairseq.data import data_utils_fast, token_block_utils_fast  # noqa: E402

MODES = ("none", "eos", "complete", "complete_doc")


@pytest.fixture
def random():
    return np.random.default_rng(1)


def same(made, expected):
    assert [array.tolist() for array in made] == [array.tolist() for array in expected]
    assert {array.dtype for array in made} == {array.dtype for array in expected}


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("multiple", [1, 2, 8])
@pytest.mark.parametrize(("max_tokens", "max_sentences"), [(50, -1), (300, -1), (-1, 7), (120, 5), (-1, -1)])
def test_batches(random, is_sorted, multiple, max_tokens, max_sentences):
    for count in (0, 1, 7, 500):
        lengths = random.integers(1, 50, count, endpoint=True)
        indices = random.permutation(count)
        lengths = np.sort(lengths) if is_sorted else lengths
        limits = (max_tokens, max_sentences, multiple)
        same(
            uncompiled.batches(indices, lengths, *limits), data_utils_fast.batch_by_size_vec(indices, lengths, *limits)
        )
        by_function = [indices, lambda index: int(index) % 50 + 1, *limits]
        same(uncompiled.batches_by_function(*by_function), data_utils_fast.batch_by_size_fn(*by_function))


def test_a_sentence_above_the_limit_is_refused_in_the_words_that_posnet_explains():
    said = []
    for function in (uncompiled.batches, data_utils_fast.batch_by_size_vec):
        with pytest.raises(AssertionError) as error:
            function(np.arange(2), np.array([3, 9]), 8, -1, 1)
        said.append(str(error.value).splitlines()[0])
    assert said[0] == said[1]


def test_fixed_shapes_are_refused():
    with pytest.raises(UsageError, match=r"need a compiled fairseq\. Leave --num-batch-buckets out"):
        uncompiled.fixed_shapes(np.arange(2), len, np.ones((1, 2)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_blocks(random, mode, size):
    for count in (1, 2, 300):
        lengths = random.integers(1, 20, count)
        lengths[random.random(count) < 0.2] = 1  # ends of documents
        expected = token_block_utils_fast._get_slice_indices_fast(lengths, mode, size, 1)
        found = uncompiled.blocks(lengths, mode, size, 1)
        assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())
        if len(found):
            expected = token_block_utils_fast._get_block_to_dataset_index_fast(lengths, expected)
            assert uncompiled.places(lengths, found).tolist() == expected.tolist()


def test_bleu(random):
    config = types.SimpleNamespace(pad=1, eos=2, unk=3)
    for one_init in (False, True):
        scorers = [bleu.Scorer(config), uncompiled.BleuScorer(config)]
        for scorer in scorers:
            scorer.reset(one_init)
        for _ in range(50):
            words = [random.integers(3, 9, random.integers(1, 12)).tolist() for _ in ("reference", "translation")]
            for scorer in scorers:
                scorer.add(*(torch.IntTensor([1, *ids, 2, 1]) for ids in words))  # padding around it
        assert scorers[0].result_string() == scorers[1].result_string()
        assert scorers[0].score() == scorers[1].score() > 0
