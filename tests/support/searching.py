"""fairseq's search as the reference of posnet's, and small models that are trained in seconds."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from posnet_fairseq.inference.search.beam import BeamSearch
from posnet_fairseq.inference.search.hypotheses import Hypothesis
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.text import synthetic
from support.building import WORDS, build_model, pad

DICTIONARY = synthetic.dictionary(WORDS)
# Every mixer, in all places of its own, and in cross-attention where it may stand there.
MIXERS = [(name, False) for name in mixer_names()]
MIXERS += [(name, True) for name in mixer_names() if "cross" in get_mixer(name).places]


def recorded(monkeypatch, owner, name):
    """A list of the arguments that a method is called with from now on."""
    calls, method = [], getattr(owner, name)

    def recording(self, *arguments):
        calls.append(arguments)
        return method(self, *arguments)

    monkeypatch.setattr(owner, name, recording)
    return calls


def search(models, sources, nbest=None, attention=False, prefixes=None, **settings):
    """All hypotheses of posnet's search, unless `nbest` says otherwise."""
    chosen = SearchSettings(**{"max_len_b": 15} | settings)
    return BeamSearch(models, DICTIONARY, chosen, nbest or chosen.beam, attention)(sources, prefixes)


def fairseq_search(models, sources, attention=False, prefixes=None, **settings):
    """All hypotheses of fairseq's search, as those of :func:`search`."""
    chosen = SearchSettings(**{"max_len_b": 15} | settings)
    for model in models:
        model.decoder.need_attn = attention
    generator = SequenceGenerator(
        models,
        DICTIONARY,
        beam_size=chosen.beam,
        max_len_a=chosen.max_len_a,
        max_len_b=chosen.max_len_b,
        min_len=chosen.min_len,
        len_penalty=chosen.lenpen,
        unk_penalty=chosen.unkpen,
        temperature=chosen.temperature,
        no_repeat_ngram_size=chosen.no_repeat_ngram_size,
    )
    if chosen.no_repeat_ngram_size:
        _repair(generator.repeat_ngram_blocker)
    net_input = {"src_tokens": pad(sources, left=True), "src_lengths": torch.tensor([*map(len, sources)])}
    forced = None if prefixes is None else pad(prefixes, width=max(map(len, prefixes)))
    found = generator.generate(models, {"net_input": net_input}, prefix_tokens=forced)
    return [
        [
            Hypothesis(each["tokens"], float(each["score"]), each["attention"][-len(source) :].T if attention else None)
            for each in hypotheses
        ]
        for source, hypotheses in zip(sources, found, strict=True)
    ]


def _repair(block):
    """Without its CUDA kernel, fairseq compares with the padding behind a hypothesis, and finds no repetition."""
    forward = block.forward
    block.forward = lambda tokens, scores, batch, beam, step: forward(tokens[:, : step + 1], scores, batch, beam, step)


def assert_same(found, expected, tolerance=1e-4):
    """Equal tokens, scores and weights. Hypotheses whose scores are equal within 1e-6 may change places."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=tolerance)
        tied = {h.score for h in theirs if sum(abs(h.score - other.score) < 1e-6 for other in theirs) > 1}
        for one, other in zip(ours, theirs, strict=True):
            if other.score not in tied:
                assert one.tokens.tolist() == other.tokens.tolist()
                assert (one.attention is None) == (other.attention is None)
                if one.attention is not None:
                    torch.testing.assert_close(one.attention, other.attention, rtol=0, atol=tolerance)
        assert sorted(h.tokens.tolist() for h in ours) == sorted(h.tokens.tolist() for h in theirs)


def trained_model(mixer, updates=800, **options):
    """A model that has learned, more or less, to reverse sentences of 3 to 9 words."""
    generator = torch.Generator().manual_seed(7)
    model = build_model(
        mixer, encoder_layers=1, decoder_layers=1, encoder_embed_dim=32, decoder_embed_dim=32, **options
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(updates):
        length = int(torch.randint(3, 10, (), generator=generator))
        source = torch.randint(4, WORDS, (32, length + 1), generator=generator)
        source[:, -1] = DICTIONARY.eos()
        target = torch.cat([source[:, :-1].flip(1), source[:, -1:]], dim=1)
        scores = model(source, None, target.roll(1, dims=1))[0]
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten(), label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval(), float(loss.detach())
