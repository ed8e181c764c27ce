"""The search among the words of a shortlist, against the search among all words of which others have no probability."""

import itertools

import pytest
import torch
from torch import nn

from posnet_fairseq.inference.precision import prepare_for_inference
from posnet_fairseq.inference.search.beam import BeamSearch
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.inference.shortlist import Shortlist
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text import synthetic
from posnet_fairseq.transformer.model import build_transformer
from support.building import model_options, sentences
from support.searching import assert_same

WORDS = 64


class Masked(nn.Module):
    """A projection in which only some words can follow."""

    def __init__(self, projection, allowed):
        super().__init__()
        self.projection = projection
        self.penalty = torch.full((WORDS,), -torch.inf)
        self.penalty[allowed] = 0

    def forward(self, x):
        return self.projection(x) + self.penalty


@pytest.fixture
def model():
    torch.manual_seed(3)
    return build_transformer(model_options("rposnet"), WORDS, WORDS).eval()


@pytest.fixture
def dictionary():
    return synthetic.dictionary(WORDS)


@pytest.fixture
def shortlist():
    """Of word w the words w and w + 7, w + 14, ..., and 30 to 39 always."""
    words = [sorted({(word + 7 * i) % (WORDS - 4) + 4 for i in range(3)}) for word in range(WORDS)]
    starts = torch.tensor([0, *map(len, words)]).cumsum(0)
    return Shortlist(starts, torch.tensor(list(itertools.chain(*words))), torch.tensor([0, 1, 2, 3, *range(30, 40)]))


@pytest.fixture
def sources():
    torch.manual_seed(1)
    return sentences(5, 2, 7)


SETTINGS = [
    {"beam": 1},
    {"beam": 5},
    {"beam": 12, "lenpen": 0.6, "unkpen": 2.0, "no_repeat_ngram_size": 2, "min_len": 3},
    {"beam": 3, "sampling": True, "sampling_topk": 5, "temperature": 0.7},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("prefixes", [None, [[], [50, 51], [9]]])
def test_equals_the_search_in_which_no_other_word_can_follow(model, dictionary, sources, shortlist, settings, prefixes):
    prefixes = prefixes and [torch.tensor(prefix, dtype=torch.long) for prefix in prefixes]
    settings = SearchSettings(max_len_b=9, **settings)
    with torch.inference_mode():
        found = BeamSearch([model], dictionary, settings, settings.beam, True, shortlist)(sources, prefixes)
        allowed = shortlist.of(sources, prefixes or [])
        assert 20 < len(allowed) < WORDS - 20
        model.decoder.output_projection = Masked(model.decoder.output_projection, allowed)
        expected = BeamSearch([model], dictionary, settings, settings.beam, True)(sources, prefixes)
    if settings.sampling:  # numbers are drawn for places in the vocabulary
        assert all(set(each.tokens.tolist()) <= set(allowed.tolist()) for ours in found for each in ours)
    else:
        assert_same(found, expected, tolerance=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bf16", "int8"])
def test_of_all_words_it_changes_nothing(model, dictionary, sources, dtype):
    model = prepare_for_inference(model, torch.device("cpu"), dtype)
    every = Shortlist(torch.zeros(WORDS + 1, dtype=torch.long), torch.tensor([]).long(), torch.arange(WORDS))
    settings = SearchSettings(4, max_len_b=6)
    found, expected = (BeamSearch([model], dictionary, settings, 4, False, given)(sources) for given in (every, None))
    if dtype == "float32":
        assert_same(found, expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[0].score == pytest.approx(theirs[0].score, abs=0.05)


def test_an_ensemble(dictionary, sources, shortlist):
    models = [build_transformer(model_options(name), WORDS, WORDS).eval() for name in ("rposnet", "attention")]
    settings = SearchSettings(4, max_len_b=6)
    found = BeamSearch(models, dictionary, settings, shortlist=shortlist)(sources)
    allowed = shortlist.of(sources)
    for model in models:
        model.decoder.output_projection = Masked(model.decoder.output_projection, allowed)
    expected = BeamSearch(models, dictionary, settings)(sources)
    assert_same(found, expected)


def test_more_hypotheses_than_words(model, dictionary, shortlist):
    source = torch.tensor([5, 2])
    words = len(shortlist.of([source]))
    with pytest.raises(UsageError, match=f"--beam {words}: the shortlist has {words} words for this batch. Give less"):
        BeamSearch([model], dictionary, SearchSettings(words), shortlist=shortlist)([source])
    assert BeamSearch([model], dictionary, SearchSettings(words - 1, max_len_b=3), shortlist=shortlist)([source])
