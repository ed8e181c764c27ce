"""--shared-attention-dropout: one draw of the dropout on static weights serves all sentences of a batch."""

import pytest
import torch

from posnet_fairseq.mixers.bases import position_based
from posnet_fairseq.ops import band
from posnet_fairseq.shared.errors import UsageError
from support.building import POSITION_BASED_IN_PLACES, build_mixer, build_model, vectors


def dropping(name, place):
    mixer = build_mixer(name, place, embed_dim=8, num_heads=2).train()
    mixer.dropout.p, mixer.shared_dropout = 0.4, True
    return mixer


def call(mixer, sentences=5, tokens=11):
    """Arguments of a padded batch (padding is behind the tokens; the decoder has no mask)."""
    x = torch.randn(sentences, tokens, 8, dtype=torch.float64)
    lengths = torch.tensor([tokens, *range(tokens - 1, tokens - sentences, -1)])
    mask = torch.arange(tokens) >= lengths[:, None]
    memory = x if mixer.place != "cross" else torch.randn_like(x)
    return x, memory, {"padding_mask": None if mixer.place == "decoder" else mask, **vectors(30, 8)}


@pytest.mark.parametrize(("name", "place"), POSITION_BASED_IN_PLACES, ids=str)
@pytest.mark.parametrize("fewest_blocks", [0, 6])
def test_each_sentence_has_its_own_weights_and_the_dropout_of_all(name, place, fewest_blocks, monkeypatch):
    """Also where sentences are long enough for the band, whose offsets share weights but not their dropout."""
    mixer = dropping(name, place)
    x, memory, context = call(mixer)
    kept = (torch.rand(2, 11, 11) > 0.4).double() / 0.6
    monkeypatch.setattr(band, "FEWEST_BLOCKS", fewest_blocks)
    monkeypatch.setattr(position_based, "dropout", lambda weights, p: weights * kept.to(weights.dtype))
    mixed = mixer(x, memory, **context)
    mixer.shared_dropout = False  # the same factors in weights of each sentence
    expected = mixer(x, memory, **context)
    real = ~context["padding_mask"] if place == "encoder" else ...
    torch.testing.assert_close(mixed[real], expected[real], rtol=0, atol=1e-9)
    mixer.dropout.p = 0
    assert not torch.allclose(mixed, mixer(x, memory, **context))


def test_all_sentences_drop_alike():
    mixer = dropping("rposnet", "encoder")
    x, _, context = call(mixer)
    x, context["padding_mask"] = x[:1].expand(5, -1, -1), None
    mixed = mixer(x, **context)
    torch.testing.assert_close(mixed, mixed[:1].expand_as(mixed))
    assert not torch.allclose(mixed, mixer(x, **context)), "each call draws again"
    mixer.shared_dropout = False
    mixed = mixer(x, **context)
    assert not torch.allclose(mixed[0], mixed[1])


def test_option_of_the_model():
    model = build_model("rposnet", shared_attention_dropout=True, attention_dropout=0.1)
    assert all(layer.self_attn.shared_dropout for side in (model.encoder, model.decoder) for layer in side.layers)
    assert not build_model("rposnet").encoder.layers[0].self_attn.shared_dropout
    with pytest.raises(UsageError, match=r"--shared-attention-dropout: none of the chosen mixers \(attention\)"):
        build_model("attention", shared_attention_dropout=True)
