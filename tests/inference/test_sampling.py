"""Sampling: draws as likely as the model says, from the seed and the source alone."""

import pytest
import torch
from scipy.stats import chisquare

from posnet_fairseq.inference.search.candidates import Sampler
from posnet_fairseq.inference.search.search_settings import SearchSettings
from support.building import build_model, sentences
from support.searching import assert_same, search

LIKELY = torch.tensor([0.4, 0.05, 0.0, 0.25, 0.3])


def tokens_of(found):
    return [[hypothesis.tokens.tolist() for hypothesis in hypotheses] for hypotheses in found]


def test_the_likeliest_of_one_is_greedy_search():
    model, sources = build_model("rposnet"), sentences(5, 9, 3)
    greedy = search([model], sources, beam=1)
    assert_same(search([model], sources, beam=1, sampling=True, sampling_topk=1), greedy)
    assert_same(search([model], sources, beam=1, sampling=True, sampling_topp=1e-6), greedy)
    assert_same(search([model], sources, beam=1, sampling=True, sampling_epsilon=1), greedy)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0.4, 0.05, 0.0, 0.25, 0.3]),
        ({"sampling_topk": 2}, [4 / 7, 0, 0, 0, 3 / 7]),
        ({"sampling_topp": 0.62}, [4 / 7, 0, 0, 0, 3 / 7]),
        ({"sampling_topp": 0.64}, [0.4 / 0.95, 0, 0, 0.25 / 0.95, 0.3 / 0.95]),
        ({"sampling_epsilon": 0.05}, [0.4 / 0.95, 0, 0, 0.25 / 0.95, 0.3 / 0.95]),
        ({"sampling_epsilon": 0.24}, [4 / 7, 0, 0, 0, 3 / 7]),
    ],
    ids=str,
)
@pytest.mark.parametrize("width", [1, 100])
def test_draws_are_as_likely_as_the_words(settings, expected, width):
    """At the first step all hypotheses of a sentence are drawn from one row, later each from its own."""
    sampler = Sampler(sentences(*range(2, 22)), SearchSettings(beam=100, sampling=True, **settings), 10, "cpu")
    log_probabilities = (0.9 * LIKELY).log().expand(20, width, -1)  # of a sum other than 1, without padding
    scores = -torch.arange(20.0)[:, None].expand(-1, width)
    counts = torch.zeros(5, dtype=torch.long)
    for step in range(10):
        found = sampler(log_probabilities, scores, torch.arange(20), step)
        counts += found.words.flatten().bincount(minlength=5)
        assert torch.equal(found.scores, log_probabilities[0, 0][found.words] - torch.arange(20.0)[:, None])
        assert torch.equal(found.rows // width, torch.arange(20)[:, None].expand(-1, 100))
    expected = torch.tensor(expected, dtype=torch.float64)
    possible = expected > 0
    assert not counts[~possible].any()
    assert counts.sum() == 20_000
    assert chisquare(counts[possible], 20_000 * expected[possible]).pvalue > 0.01


def test_hypotheses_are_as_likely_as_the_model_says():
    """The first two words of translations, against their exact probabilities."""
    model, (source,) = build_model("attention"), sentences(6)
    (found,) = search(
        [model], [source], beam=1000, sampling=True, sampling_topk=4, temperature=2.0, max_len_b=2, min_len=2
    )
    with torch.inference_mode():
        likely = {}
        for first, p in _likely(model, source, [2]):
            likely |= {(first, second): p * q for second, q in _likely(model, source, [2, first])}
    counts = dict.fromkeys(likely, 0)
    for hypothesis in found:
        counts[tuple(hypothesis.tokens[:-1].tolist())] += 1
    assert len(found) == 1000
    assert chisquare([counts[words] for words in likely], [1000 * p for p in likely.values()]).pvalue > 0.01


def _likely(model, source, read):
    """The four likeliest next words other than padding and the end symbol, with their probabilities."""
    scores = model(source[None], None, torch.tensor([read]))[0][0, -1] / 2.0
    scores[[1, 2]] = -torch.inf
    best, words = scores.topk(4)
    return list(zip(words.tolist(), best.double().softmax(0).tolist(), strict=True))


def test_seeds():
    model, sources = build_model("rposnet"), sentences(5, 9, 3)
    settings = {"beam": 4, "sampling": True, "temperature": 1.5}
    first, again, other = (tokens_of(search([model], sources, seed=seed, **settings)) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert len({tuple(tokens) for tokens in first[0]}) > 1


@pytest.mark.parametrize("settings", [{}, {"sampling_topk": 10}, {"sampling_topp": 0.8}], ids=str)
def test_other_lines_change_nothing(settings):
    model, sources = build_model("rposnet"), sentences(5, 9, 3, 7)
    settings = {"beam": 3, "sampling": True, "max_len_a": 1.0, "max_len_b": 3} | settings
    together = search([model], sources, **settings)
    longest = sources[1]
    for source, expected in zip(sources, together, strict=True):
        # With the longest source, as it sets the greatest length.
        found, *_ = search([model], [source, longest], **settings)
        assert_same([found], [expected])


def test_scores_are_log_probabilities():
    model, (source,) = build_model("attention"), sentences(6)
    (found,) = search([model], [source], beam=5, sampling=True, sampling_topk=5, temperature=0.5, lenpen=0)
    for hypothesis in found:
        read = torch.tensor([[2, *hypothesis.tokens[:-1].tolist()]])
        with torch.inference_mode():
            each = (model(source[None], None, read)[0][0] / 0.5).log_softmax(1)
        expected = each.gather(1, hypothesis.tokens[:, None]).sum()
        assert hypothesis.score == pytest.approx(float(expected), abs=1e-4)


def test_what_is_forced_is_drawn_however_unlikely_it_is():
    model, sources = build_model("attention"), sentences(6, 4)
    prefixes = [torch.arange(4, 12), torch.tensor([], dtype=torch.long)]
    settings = {"beam": 4, "sampling": True, "temperature": 0.001, "max_len_b": 9}
    for hypothesis in search([model], sources, prefixes=prefixes, **settings)[0]:
        assert hypothesis.score < -500
        assert hypothesis.tokens[:8].tolist() == prefixes[0].tolist()
        assert hypothesis.tokens[-1] == 2


def test_what_has_ended_is_not_continued():
    model, sources = build_model("attention"), sentences(6, 4, 5)
    found = search([model], sources, beam=12, sampling=True, temperature=10.0)  # an end symbol every 40 tokens
    lengths = [len(hypothesis.tokens) for hypotheses in found for hypothesis in hypotheses]
    assert len(lengths) == 36
    assert len(set(lengths)) > 3
    assert all(2 not in hypothesis.tokens[:-1] for hypotheses in found for hypothesis in hypotheses)
