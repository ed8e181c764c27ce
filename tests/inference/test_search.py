"""The search against fairseq's: the same hypotheses, scores and attention weights."""

import functools

import pytest
import torch

from support.building import WORDS, Case, build_case, build_language_model, build_model, sentences
from support.searching import DICTIONARY, MIXERS, assert_same, fairseq_search, recorded, search, trained_model

BEAMS = (1, 5, 12)
SETTINGS = {
    "as they are": {},
    "penalties": {"lenpen": 0.3, "unkpen": 0.7, "temperature": 0.6, "min_len": 4},
    "bonuses": {"lenpen": 1.7, "unkpen": -2.0, "temperature": 1.5, "min_len": 0},
    "one token": {"max_len_b": 1},
    "lengths of the source": {"max_len_a": 0.8, "max_len_b": 2},
    "no repetitions": {"no_repeat_ngram_size": 2},
}
TRAINED = ("attention", "rposnet", "lightconv")  # each with a state of another kind


def sources():
    """The same in every test, of different lengths, in an order that is not by length."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return sentences(5, 9, 1, 7)


def compare(models, sources, attention=False, **settings):
    """Search with both, and return what was found."""
    found = search(models, sources, attention=attention, **settings)
    assert_same(found, fairseq_search(models, sources, attention=attention, **settings))
    return found


@pytest.mark.parametrize(("mixer", "is_cross"), MIXERS)
def test_every_mixer(mixer, is_cross):
    model = build_case(Case(mixer, "cross", "none")) if is_cross else build_model(mixer)
    for beam in BEAMS:
        compare([model], sources(), beam=beam, attention=is_cross or beam == 5)


@functools.cache
def trained(mixer):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model, loss = trained_model(mixer)
    assert loss < 1.5, "it has not learned to reverse"
    return model


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("beam", BEAMS)
@pytest.mark.parametrize("mixer", TRAINED)
@pytest.mark.quick_cases(18)  # those of the first
def test_trained_models(mixer, beam, name):
    """Whose hypotheses end by themselves, at different steps."""
    chosen = {"attention": True, "max_len_b": 14} | SETTINGS[name]
    found = compare([trained(mixer)], sentences(9, 4, 6, 10, 7, 5, 8, 9), beam=beam, **chosen)
    if name == "as they are" and beam > 1:
        assert len({len(hypothesis.tokens) for hypotheses in found for hypothesis in hypotheses}) > 4


@pytest.mark.thorough  # 6 s
def test_finished_sentences_leave_the_batch(monkeypatch):
    model = trained("rposnet")
    steps = recorded(monkeypatch, type(model.decoder), "features")
    found = search([model], sentences(4, 10, 6), beam=4)
    rows = [len(tokens) for tokens, *_ in steps]
    assert rows[:2] == [3, 12]  # the hypotheses of a sentence are equal at first
    assert rows[1:] == sorted(rows[1:], reverse=True)
    assert set(rows[1:]) == {12, 8, 4}
    assert all(len(hypotheses) == 4 for hypotheses in found)


def test_hypotheses_that_begin_alike_are_one(monkeypatch):
    model = build_model("rposnet")
    steps = recorded(monkeypatch, type(model.decoder), "features")
    search([model], sentences(4, 6), beam=4, prefixes=[torch.arange(4, 7), torch.arange(4, 9)], max_len_b=6, min_len=6)
    assert [len(tokens) for tokens, *_ in steps] == [2, 2, 2, 2, 8, 8, 8]


@pytest.mark.parametrize("beam", BEAMS)
@pytest.mark.parametrize("mixers", [("rposnet", "attention"), ("shaw", "lightconv", "linearnet")])
def test_ensembles_of_different_mixers(mixers, beam):
    models = [build_model(mixer) for mixer in mixers]
    compare(models, sources(), beam=beam, attention=True)
    compare(models, sources(), beam=beam, temperature=0.5, unkpen=1.0)


@pytest.mark.parametrize("beam", BEAMS)
def test_beginnings_of_one_length(beam):
    model, prefixes = build_model("rposnet"), [tokens[:-1] for tokens in sentences(4, 4, 4, 4)]
    found = compare([model], sources(), beam=beam, prefixes=prefixes, attention=True)
    for hypotheses, prefix in zip(found, prefixes, strict=True):
        assert all(hypothesis.tokens[:3].equal(prefix) for hypothesis in hypotheses)


@pytest.mark.parametrize("beam", BEAMS)
@pytest.mark.parametrize("repeated", [0, 2])
def test_beginnings_of_different_lengths(beam, repeated):
    """As fairseq does each sentence by itself: in a batch it lets short beginnings escape the least length."""
    model, prefixes = build_model("rposnet"), [tokens[:-1] for tokens in sentences(5, 1, 3, 16)]
    settings = {"beam": beam, "min_len": 7, "no_repeat_ngram_size": repeated}
    found = search([model], sources(), prefixes=prefixes, **settings)
    for ours, source, prefix in zip(found, sources(), prefixes, strict=True):
        forced = [prefix] if len(prefix) else None
        assert_same([ours], fairseq_search([model], [source], prefixes=forced, **settings))


def test_a_beginning_may_repeat_itself():
    """What is forced is allowed; what follows repeats nothing of it."""
    word = torch.tensor([7, 7, 7])
    ((found,),) = search([build_model("rposnet")], sentences(5), beam=1, prefixes=[word], no_repeat_ngram_size=1)
    tokens = found.tokens.tolist()
    assert tokens[:3] == [7, 7, 7]
    assert len(set(tokens)) == len(tokens) - 2


@pytest.mark.parametrize("beam", [WORDS - 1, WORDS // 2 + 2])
def test_beam_of_more_than_half_of_the_vocabulary(beam):
    compare([build_model("attention")], sources(), beam=beam, max_len_b=4)


@pytest.mark.parametrize("beam", BEAMS)
def test_the_longest_translations_are_those_the_model_has_positions_for(beam):
    found = compare([build_model("rposnet", max_target_positions=9)], sources(), beam=beam, max_len_b=200)
    assert max(len(hypothesis.tokens) for hypotheses in found for hypothesis in hypotheses) == 9


@pytest.mark.parametrize("mixer", ["attention", "rposnet", "lightconv"])
@pytest.mark.parametrize("beam", BEAMS)
def test_language_models(mixer, beam):
    """fairseq gives a language model its beginning as a prefix."""
    model, begin = build_language_model(mixer), [tokens[:-1] for tokens in sentences(4, 4, 4)]
    found = search([model], begin, beam=beam)
    expected = fairseq_search([model], begin, prefixes=begin, beam=beam)
    assert_same(found, expected)
    different = [begin[0], begin[1][:0], begin[2][:1]]
    again = search([model], different, beam=beam)
    assert_same(again[:1], expected[:1])
    assert_same(again[1:2], fairseq_search([model], different[:1], beam=beam))


def test_words_of_the_dictionary_only():
    found = search([build_model("attention")], sources(), beam=12, unkpen=1000.0)
    words = {token for hypotheses in found for hypothesis in hypotheses for token in hypothesis.tokens[:-1].tolist()}
    assert not words & {DICTIONARY.pad(), DICTIONARY.eos(), DICTIONARY.unk()}
