"""Searches whose hypotheses must contain given sequences of tokens."""

import itertools
import random

import pytest
import torch
from torch import nn

from posnet_fairseq.inference.search.beam import BeamSearch, ForcedDecoding
from posnet_fairseq.inference.search.constraints import Automaton, Constraints
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.inference.shortlist import Shortlist
from posnet_fairseq.inference.translator import Translator
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text import synthetic
from posnet_fairseq.text.dictionary import Dictionary, Vocabulary
from posnet_fairseq.text.pipeline import Pipeline
from posnet_fairseq.text.subwords import Merges
from posnet_fairseq.text.tokenizers import Tokenizer
from posnet_fairseq.transformer.model import build_transformer
from support.building import build_model, model_options, sentences
from support.searching import DICTIONARY

KINDS = [0, 1, 2, 3]  # of tokens that join words, in turn
# As lists of the ways that each can be written.
EXAMPLES = {
    "one": [[[7]]],
    "several": [[[7]], [[9, 8]], [[12, 5, 6]]],
    "shared beginnings": [[[7, 8]], [[7, 9]], [[7]]],
    "one within another": [[[6, 7, 8]], [[7]], [[8, 9]]],
    "the same twice": [[[7, 8]], [[7, 8]], [[9]], [[9]]],
    "repeated tokens": [[[7, 7]], [[7, 7, 8]], [[7]]],
    "two ways": [[[9, 10], [11]], [[10], [12, 10]]],
}


def joined(before, token, joins):
    return bool(joins[before] & 1 and joins[token] & 2)


def met(tokens, constraints, joins):
    """How often each constraint is in tokens, as one would look for them: from the left, the longest of all."""
    different = list(dict.fromkeys(tuple(map(tuple, paths)) for paths in constraints))
    counts, start = [0] * len(different), 0
    while start < len(tokens):
        found = [
            (len(path), number)
            for number, paths in enumerate(different)
            for path in paths
            if tuple(tokens[start : start + len(path)]) == path
            and not (start and joined(tokens[start - 1], tokens[start], joins))
            and not (
                start + len(path) < len(tokens)
                and joined(tokens[start + len(path) - 1], tokens[start + len(path)], joins)
            )
        ]
        size, number = max(found, default=(1, None))
        if number is not None:
            counts[number] += 1
        start += size
    return counts


def needed(constraints):
    keys = [tuple(map(tuple, paths)) for paths in constraints]
    return [keys.count(key) for key in dict.fromkeys(keys)]


def lacks(tokens, constraints, joins):
    """How many tokens of constraints are missing in a whole text."""
    counts, often = met(tokens, constraints, joins), needed(constraints)
    sizes = [max(map(len, paths)) for paths in dict.fromkeys(tuple(map(tuple, each)) for each in constraints)]
    return sum(size * max(0, n - count) for size, n, count in zip(sizes, often, counts, strict=True))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_automaton_counts_as_one_would(name):
    generator = random.Random(3)
    constraints = EXAMPLES[name]
    for _ in range(150):
        joins = [0] * 4 + [generator.choice(KINDS) if generator.random() < 0.5 else 0 for _ in range(12)]
        automaton = Automaton(constraints, joins)
        symbols = {token: 4 + column for column, token in enumerate(automaton.alphabet)}
        tokens = [generator.choice([*automaton.alphabet, 4, 13]) for _ in range(generator.randint(1, 12))]
        state, counts = 0, torch.zeros(len(automaton.needed), dtype=torch.long)
        for token in [*tokens, DICTIONARY.eos()]:
            column = symbols.get(token, joins[token])
            counts += automaton.met[state, column]
            state = int(automaton.next[state, column])
        assert counts.tolist() == met(tokens, constraints, joins), tokens


def constrained(models, sources, constraints, joins=lambda symbol: 0, prefixes=None, **settings):
    chosen = SearchSettings(**{"max_len_b": 15} | settings)
    return BeamSearch(models, DICTIONARY, chosen, chosen.beam, joins=joins)(sources, prefixes, constraints)


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_hypothesis_meets_its_constraints(name, beam):
    """Also where all tokens that they have just fit."""
    models, sources = [build_model("rposnet"), build_model("attention")], sentences(5, 9, 1, 7)
    examples = [EXAMPLES[name], [[[4]]], [*EXAMPLES[name], [[14, 15]]], EXAMPLES["several"]]
    total = max(sum(max(map(len, paths)) for paths in each) for each in examples)
    for length in (total, 15):
        found = constrained(models, sources, examples, beam=beam, max_len_b=length, lenpen=0.5)
        for hypotheses, constraints in zip(found, examples, strict=True):
            assert hypotheses
            for one in hypotheses:
                assert lacks(one.tokens.tolist(), constraints, [0] * len(DICTIONARY)) == 0
            assert [one.score for one in hypotheses] == sorted((one.score for one in hypotheses), reverse=True)


@pytest.mark.parametrize("seed", range(6))
def test_random_constraints_of_words_of_several_tokens(seed):
    """Words go on from some tokens to others, and constraints are whole words."""
    generator = random.Random(seed)
    joins = [0] * 4 + [generator.choice([0, 0, 1, 2, 3]) for _ in DICTIONARY.symbols[4:]]
    kinds = dict(zip(DICTIONARY.symbols, joins, strict=True))
    begins, ends = ([word for word in range(4, 40) if not joins[word] & kind][:5] for kind in (2, 1))

    def constraint():
        alone = [word for word in range(4, 40) if not joins[word]]
        longer = [generator.choice(begins), *generator.sample(range(4, 9), generator.randint(0, 2))]
        return [generator.choice([[generator.choice(alone[:3])], [*longer, generator.choice(ends)]])]

    given = [[constraint() for _ in range(generator.randint(1, 4))] for _ in range(4)]
    total = max(sum(len(paths[0]) for paths in each) for each in given)
    for beam, length in itertools.product((1, 2, 6), (total + 2, 15)):
        settings = {"beam": beam, "max_len_b": length}
        found = constrained([build_model("rposnet")], sentences(5, 9, 4, 7), given, kinds.__getitem__, **settings)
        for hypotheses, constraints in zip(found, given, strict=True):
            assert all(lacks(one.tokens.tolist(), constraints, joins) == 0 for one in hypotheses)


def test_what_does_not_fit_is_met_as_far_as_it_fits():
    constraints = [[[7, 8]], [[9, 10]], [[11]]]
    (found,) = constrained([build_model("rposnet")], sentences(6), [constraints], beam=4, max_len_b=3)
    assert found
    assert {lacks(one.tokens.tolist(), constraints, [0] * 30) for one in found} == {2}


@pytest.mark.parametrize(("end", "chosen"), [(-1.2, 2), (-9.0, 7)])
def test_a_term_is_not_written_again_because_the_likeliest_token_joins_it(end, chosen):
    """With a beam of 1, after a term's last token: it ends there, or another word begins."""
    joins, numbers = torch.tensor([0] * 5 + [1, 3, 1]), torch.tensor([0])
    found = Constraints([[[[5]]]], joins, eos=2, never=1, device=torch.device("cpu"))
    found.advance(torch.tensor([5]), torch.tensor([0]), numbers)
    scores = torch.tensor([[[-20, -torch.inf, end, -20, -20, -15, -0.4, -3]]])
    part = found.candidates(scores, torch.zeros(1, 1), 1, numbers)
    assert found.allocated(part, 1, numbers).words.tolist() == [[chosen]]


def test_beginnings_count():
    (found,) = constrained(
        [build_model("rposnet")], sentences(6), [[[[8, 9]], [[10]]]], prefixes=[torch.tensor([7, 8])], beam=3
    )
    assert all(one.tokens.tolist()[:2] == [7, 8] for one in found)
    assert all(lacks(one.tokens.tolist(), [[[8, 9]], [[10]]], [0] * 30) == 0 for one in found)


class FewWords(nn.Module):
    """A projection in which only the words 4 to 7 and the end symbol can follow."""

    def __init__(self, projection):
        super().__init__()
        self.projection = projection

    def forward(self, x):
        scores = self.projection(x)
        return torch.full_like(scores, -torch.inf).index_copy(-1, WITH_END, scores[..., WITH_END])


def test_words_of_constraints_are_in_the_shortlist():
    always = torch.tensor([0, 1, 2, 3, *range(20, 30)])
    shortlist = Shortlist(
        torch.zeros(len(DICTIONARY) + 1, dtype=torch.long), torch.tensor([], dtype=torch.long), always
    )
    settings = SearchSettings(beam=5, max_len_b=9)
    search = BeamSearch([build_model("rposnet")], DICTIONARY, settings, 5, shortlist=shortlist)
    constraints = [[[[7, 8]]], [[[33]], [[20]]]]
    for hypotheses, wanted in zip(search(sentences(5, 6), constraints=constraints), constraints, strict=True):
        for one in hypotheses:
            assert lacks(one.tokens.tolist(), wanted, [0] * len(DICTIONARY)) == 0
            assert set(one.tokens.tolist()) <= {*always.tolist(), 7, 8, 33}


def test_constraints_that_no_translation_has(tmp_path):
    (tmp_path / "codes").write_text("#version: 0.2\nn e\nne t</w>\n")
    words, merges = Tokenizer("de", "moses", lowercase=True), Merges(tmp_path / "codes")
    dictionary = Dictionary(["net", "+"])
    vocabulary = Vocabulary("en", "de", dictionary, dictionary)
    translator = Translator(None, vocabulary, Pipeline(words, words, merges, merges), 9)
    assert translator.encode_constraints(["net", "net net"]) == {"net": [[4]], "net net": [[4, 4]]}
    with pytest.raises(UsageError, match=r"^the model's vocabulary lacks a part of 'cable', '☃', which translations m"):
        translator.encode_constraints(["cable", "net", "☃"])
    with pytest.raises(UsageError, match=r"^the model writes 'Net' as 'net', which translations must contain\. Give"):
        translator.encode_constraints(["net", "Net"])


FEW, WITH_END = range(4, 8), torch.tensor([2, 4, 5, 6, 7])


@pytest.mark.parametrize(
    "constraints",
    [
        [[[5]]],
        [[[5, 6]], [[7]]],
        [[[5]], [[5]]],
        [[[5, 6]], [[5]]],
        [[[5, 6]], [[5, 5]]],
        [[[5, 6], [7]], [[4]]],
    ],
    ids=str,
)
def test_a_wide_beam_finds_all_texts_that_meet_the_constraints(constraints):
    """Against all texts of at most 4 tokens, each scored alone, without those that lack a constraint."""
    torch.manual_seed(3)
    dictionary, settings = synthetic.dictionary(400), SearchSettings(beam=350, max_len_b=4, lenpen=0.7, min_len=0)
    model, (source,) = build_transformer(model_options("rposnet"), 400, 400).eval(), sentences(4, words=400)
    model.decoder.output_projection = FewWords(model.decoder.output_projection)
    texts = [
        text
        for length in range(5)
        for text in itertools.product(FEW, repeat=length)
        if lacks(text, constraints, [0] * 400) == 0
    ]
    assert 1 < len(texts) < 300
    (found,) = BeamSearch([model], dictionary, settings, settings.beam)([source], constraints=[constraints])
    assert {tuple(one.tokens.tolist()[:-1]) for one in found} == set(texts)
    assert len(found) == len(texts)
    whole = [torch.tensor([*text, dictionary.eos()]) for text in texts]
    scored = ForcedDecoding([model], dictionary, settings)([source] * len(texts), whole)
    best = max(scored, key=lambda each: each[0].score)[0]
    assert found[0].score == pytest.approx(best.score, abs=1e-5)
    scores = {tuple(one.tokens.tolist()): one.score for (one,) in scored}
    assert all(scores[tuple(one.tokens.tolist())] == pytest.approx(one.score, abs=1e-4) for one in found)
