"""The parts of a step of the search: top-k, restrictions, what waits for the device, and numbers that are none."""

import pytest
import torch

from posnet_fairseq.inference.search import beam
from posnet_fairseq.inference.search.candidates import BLOCK, best_candidates
from posnet_fairseq.inference.search.ensemble import Decoding, log_sum_exp
from posnet_fairseq.inference.search.restrictions import forbid_repetitions
from posnet_fairseq.mixers.bases import decoding_state
from posnet_fairseq.mixers.bases.decoding_state import DecodingState, order_of_sentences
from posnet_fairseq.mixers.bases.lineage import Lineage
from posnet_fairseq.shared.errors import UsageError
from support.building import build_model, sentences
from support.searching import assert_same, recorded, search


@pytest.mark.parametrize("words", [8 * BLOCK, 40 * BLOCK, 40 * BLOCK + 1, 41 * BLOCK - 1, 5])
@pytest.mark.parametrize("hypotheses", [1, 4])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_best_candidates_are_those_of_all_hypotheses(words, hypotheses, count):
    following, before = torch.randn(7, hypotheses, words), torch.randn(7, hypotheses)
    following[0, 0, -count:] = 9.0 + torch.arange(count)
    following[1, -1, 0] = 9.0
    following[2, :, 3:] = -torch.inf
    values, index = (following + before[:, :, None]).flatten(1).topk(count)
    found = best_candidates(following, before, count)
    assert torch.equal(found.scores, values)
    real = values.isfinite()
    assert torch.equal(found.words[real], (index % words)[real])
    assert torch.equal(found.rows[real], (index // words + hypotheses * torch.arange(7)[:, None])[real])
    assert all(len(set(pairs)) == count for pairs in map(list, map(zip, found.words.tolist(), found.rows.tolist())))


@pytest.mark.parametrize("size", [0.1, 3, 20, 1000])  # up to 60 and beyond
@pytest.mark.parametrize("shape", [(1, 3), (40, 32000), (9, 70_001)])
def test_normalizers_are_those_of_the_softmax(shape, size):
    scores = size * torch.randn(shape)
    expected = scores.double().logsumexp(1, keepdim=True)
    torch.testing.assert_close(log_sum_exp(scores).double(), expected, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(log_sum_exp(scores - 1000).double(), expected - 1000, rtol=1e-6, atol=1e-5)
    scores[0, 1], scores[-1, 2] = -torch.inf, torch.nan
    assert log_sum_exp(scores)[-1].isnan()
    assert log_sum_exp(torch.full((1, 3), torch.inf)).isnan()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_repetitions(size):
    history = torch.randint(3, (50, 9))
    scores = torch.randn(50, 3)
    forbidden = scores.clone()
    forbid_repetitions(forbidden, history, size)
    for tokens, row, before in zip(history.tolist(), forbidden, scores, strict=True):
        seen = {tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}
        for word in range(3):
            repeats = tuple([*tokens, word][-size:]) in seen
            assert row[word] == (-torch.inf if repeats else before[word])


@pytest.mark.parametrize(
    "settings",
    [
        {"beam": 3, "no_repeat_ngram_size": 2},
        {"beam": 2, "prefixes": [torch.tensor(some) for some in ([5, 6], [7], [8, 9, 10], [])]},
        {"beam": 2, "sampling": True},
    ],
    ids=str,
)
def test_sentences_are_searched_alike_alone_and_together(monkeypatch, settings):
    models, sources = [build_model("rposnet")], sentences(4, 9, 6, 5)
    together = search(models, sources, **settings)
    monkeypatch.setattr(beam, "_ROWS", 1)
    assert_same(search(models, sources, **settings), together, tolerance=1e-5)


def test_greedy_search_reorders_when_a_sentence_leaves_only(monkeypatch):
    orders = recorded(monkeypatch, Decoding, "reorder")
    prefixes = [torch.tensor([5, 6]), torch.tensor([7]), torch.tensor([8, 9, 10])]
    model = build_model("rposnet")
    search([model], sentences(4, 5, 6), beam=1, max_len_b=3, prefixes=prefixes)
    assert not orders
    found = search([model], sentences(4, 5, 6), beam=1, min_len=0, unkpen=100, temperature=5)
    lengths = {len(best.tokens) for (best,) in found}
    assert len(orders) == len(lengths) - 1


def test_decoding_does_not_compare_orders(monkeypatch):
    """It is told which sentences stay."""
    monkeypatch.delattr(decoding_state, "order_of_sentences")
    search([build_model("rposnet")], sentences(4, 5), beam=3)


@pytest.mark.parametrize("mixer", ["attention", "rope"])
def test_hypotheses_that_share_a_memory_are_those_with_memories_of_their_own(monkeypatch, mixer):
    torch.manual_seed(0)
    model = build_model(mixer, max_target_positions=50).double()
    end = model.decoder.output_projection.weight[2].detach()
    model.decoder.final_norm.bias.data += 4 * end / end.square().sum()  # sentences end in different steps
    appended = recorded(monkeypatch, Lineage, "append")
    sources, settings = sentences(*range(3, 13)), {"beam": 3, "max_len_b": 40}
    shared = search([model], sources, **settings)
    rows = {memory.size(1) for memory, *_ in appended if memory is not None}
    assert {10} < rows <= {*range(1, 11)}  # one for each sentence, until it leaves
    monkeypatch.setattr(DecodingState, "in_place", False)
    assert_same(search([model], sources, **settings), shared, tolerance=1e-5)


def test_tokens_that_no_hypothesis_descends_from_are_dropped():
    """All hypotheses descend from one of each step, so that few slots are left of 40 steps with 5 hypotheses."""
    lineage, memory = Lineage(), None
    new, order = torch.ones(1, 2, 1, 3), torch.zeros(5, dtype=torch.long)
    for position in range(40):
        memory = lineage.append(memory, position * new, -position * new, position)
        slots = lineage.hidden[0, 0].eq(0).nonzero()[:, 0]
        assert memory[0, 0, 0, slots, 0].tolist() == (-memory[1, 0, 1, slots, 2]).tolist() == [*range(position + 1)]
        assert len(slots) == position + 1
        lineage.reorder(order, None, 5)
        new = torch.ones(5, 2, 1, 3)
    assert memory.size(3) < 40 + 5 * 6


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("settings", [{"beam": 1}, {"beam": 5}, {"sampling": True}], ids=str)
def test_numbers_that_are_none(value, settings):
    model = build_model("rposnet")
    with torch.no_grad():
        model.decoder.final_norm.bias.fill_(value)
    with pytest.raises(UsageError, match=r"become infinite or NaN, .* Take an earlier checkpoint"):
        search([model], sentences(4, 6), **settings)


@pytest.mark.parametrize("settings", [{"beam": 1}, {"beam": 5}, {"sampling": True}], ids=str)
def test_settings_that_leave_no_translation_are_named(settings):
    """The numbers of the model are not to blame: after 38 tokens every word of the dictionary would be repeated."""
    model = build_model("rposnet", max_target_positions=99)
    with pytest.raises(UsageError, match=r"--no-repeat-ngram-size 1 and --min-len 60 leave no translation.*Give"):
        search([model], sentences(4, 6), no_repeat_ngram_size=1, min_len=60, max_len_b=80, **settings)


def test_one_broken_model_of_an_ensemble_is_noticed():
    models = [build_model("rposnet"), build_model("attention")]
    with torch.no_grad():
        models[1].decoder.final_norm.bias.fill_(torch.nan)
    with pytest.raises(UsageError, match="become infinite or NaN"):
        search(models, sentences(4, 6))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"min_len": 16}, "--min-len 16: the translations of this batch end after 15 tokens at most"),
        ({"min_len": 24, "max_len_b": 200}, "--min-len 24: the translations of this batch end after 23 tokens at most"),
        ({"prefixes": [torch.arange(4, 20)]}, "a beginning of 16 tokens is given, and .* end after 15 tokens"),
        ({"prefixes": [torch.tensor([5, 2])]}, "a beginning contains </s> or <pad>"),
    ],
)
def test_what_leaves_no_hypothesis_is_refused(settings, sentence):
    with pytest.raises(UsageError, match=f"^{sentence}"):
        search([build_model("rposnet")], sentences(4), **settings)


def test_states_that_never_move_are_not_copied(monkeypatch):
    """The states of cross-attention, of which hypotheses share those of their sentence."""
    moved = recorded(monkeypatch, DecodingState, "select")
    search([build_model("rposnet")], sentences(4, 6), beam=4, min_len=9, max_len_b=9)
    assert moved
    assert all(order is None for order, _ in moved)


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
