"""Layers with weights laid out for inference compute what the layers that they replace compute."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from posnet_fairseq.inference.packing import (
    LARGEST,
    Int8Embedding,
    Int8Linear,
    PackedLinear,
    PlainLinear,
    int8_rows,
    pack,
)
from posnet_fairseq.ops.linear import multiplies_bf16
from posnet_fairseq.registry import mixer_names
from posnet_fairseq.transformer.decoder import DecoderState
from support.building import build_model, pad, sentences

ACTIVATIONS = {"none": lambda x: x, "relu": F.relu, "gelu": F.gelu}
activations = pytest.mark.parametrize("activation", ACTIVATIONS)
WITH_LINEARS_OF_POSITIONS = {"rposnet", "aposnet", "arposnet", "transformer_xl", "alpha_translution"}
shapes = pytest.mark.parametrize("shape", [(5, 24), (7, 1, 24), (2, 3, 24)], ids=str)


def layer(bias=True):
    torch.manual_seed(1)
    return nn.Linear(24, 37, bias=bias)


@shapes
@activations
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [PlainLinear, PackedLinear])
def test_float_layers_equal_the_original(kind, bias, activation, shape):
    linear, x = layer(bias), torch.randn(shape)
    with torch.inference_mode():
        expected = ACTIVATIONS[activation](linear(x))
        torch.testing.assert_close(kind(linear, activation)(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not multiplies_bf16(), reason="this processor does not multiply in bf16")
@shapes
@activations
def test_bfloat16_layer_rounds_inputs_and_weights(activation, shape):
    linear, x = layer(), torch.randn(shape)
    rounded = F.linear(x.bfloat16().double(), linear.weight.bfloat16().double(), linear.bias.bfloat16().double())
    with torch.inference_mode():
        found = PackedLinear(linear, activation, torch.bfloat16)(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, ACTIVATIONS[activation](rounded).float(), rtol=2**-7, atol=2**-7)


@shapes
@activations
def test_int8_layer_is_the_product_of_8_bit_numbers(activation, shape):
    linear, x = layer(), torch.randn(shape)
    rows, scales = int8_rows(linear.weight.detach())
    # The range of the inputs holds zero and has 256 steps.
    low, high = min(0.0, float(x.min())), max(0.0, float(x.max()))
    step = (high - low) / 255
    zero = round(-low / step)
    inputs = ((x / step).round() + zero).clamp(0, 255) - zero
    expected = (inputs.double() @ rows.double().T) * step * scales + linear.bias
    with torch.inference_mode():
        found = Int8Linear(linear, activation)(x)
    torch.testing.assert_close(found, ACTIVATIONS[activation](expected).float(), rtol=1e-4, atol=2e-2)
    assert (found - ACTIVATIONS[activation](linear(x))).abs().mean() < 0.02


def test_sums_of_8_bit_products_do_not_overflow():
    linear = layer(bias=False)
    nn.init.ones_(linear.weight)
    with torch.inference_mode():
        torch.testing.assert_close(Int8Linear(linear)(torch.ones(5, 24)), torch.full((5, 37), 24.0))


def test_int8_layer_that_scales_rows_rounds_each_by_itself():
    linear, x = layer(), torch.randn(2, 3, 24) * torch.tensor([1e-3, 1.0, 1e3])[:, None]
    x[0, 1] = 0
    with torch.inference_mode():
        expected, found = F.linear(x, linear.weight), Int8Linear(linear, by_row=True)(x) - linear.bias
        distance = (found - expected).norm(dim=-1)
        torch.testing.assert_close(found[0, 1], torch.zeros(37), rtol=0, atol=1e-7)
        assert (distance <= 0.02 * x.norm(dim=-1)).all()
        together = Int8Linear(linear)(x) - linear.bias
        assert (together - expected).norm(dim=-1)[0, 0] > distance[0, 0] * 10


def test_rows_of_8_bits_are_as_near_as_they_can_be():
    weight = torch.randn(6, 40) * torch.logspace(-4, 3, 6)[:, None]
    weight[2] = 0
    rows, scales = int8_rows(weight)
    assert rows.abs().amax(dim=1).tolist() == [LARGEST, LARGEST, 0, LARGEST, LARGEST, LARGEST]
    assert ((rows * scales[:, None] - weight).abs() <= scales[:, None] * 0.5001).all()
    embedding = nn.Embedding.from_pretrained(weight)
    found = Int8Embedding(embedding)(torch.tensor([[5, 2], [0, 1]]))
    torch.testing.assert_close(found, (rows * scales[:, None]).float()[torch.tensor([[5, 2], [0, 1]])])


def scores(model):
    """Of a full pass, and of steps with hypotheses that change places."""
    torch.manual_seed(2)
    source, target = pad(sentences(9, 4)), pad(sentences(7, 7))
    with torch.inference_mode():
        encoded = model.encoder.encode(source)
        found = [model.decoder.features(target, encoded).x]
        encoded, state = model.encoder.encode(source), DecoderState()
        for token in target.split(1, dim=1):
            found.append(model.decoder.features(token, encoded, state).x)
            state.reorder(torch.tensor([1, 0]))
        return torch.cat([model.decoder.output_layer(each) for each in found], dim=1)


OTHERS = [
    ("attention", {"gate": "gelu"}),
    ("shaw", {"gate": "glu", "cross_mixer": "rposnet", "cross_gate": "gelu", "length_ratio": "2"}),
    ("rposnet", {"activation_fn": "gelu"}),
    ("rposnet", {"activation_fn": "tanh"}),
]


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize(("mixer", "options"), [(name, {}) for name in mixer_names()] + OTHERS, ids=str)
def test_packed_models_compute_the_same(mixer, options):
    model = build_model(mixer, **options)
    # Norms of heads of four features enlarge what weights lose, which have 7 bits where the processor lacks VNNI.
    int8 = 0.08 if mixer in ("gla", "gated_deltanet") else 0.06
    for dtype, distance in (("float32", 1e-5), ("bf16", 0.03), ("int8", int8)):
        packed = copy.deepcopy(model)
        pack(packed, dtype)
        plain = nn.Linear in map(type, packed.modules())
        assert not plain or {mixer, options.get("cross_mixer")} & WITH_LINEARS_OF_POSITIONS
        expected, found = scores(model), scores(packed)
        assert (found - expected).norm() / expected.norm() < distance


def test_processors_without_bfloat16_round_to_it(monkeypatch):
    linear, x = layer(), torch.randn(5, 24)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    model = build_model("rposnet")
    pack(model, "bf16")
    assert isinstance(model.decoder.layers[0].feed_forward.inner, PlainLinear)
    expected = F.linear(x.bfloat16().float(), linear.weight.bfloat16().float(), linear.bias)
    torch.testing.assert_close(PlainLinear(linear, dtype=torch.bfloat16)(x), expected)


def test_packing_draws_no_random_numbers():
    model, state = build_model("rposnet"), torch.get_rng_state()
    pack(model, "float32")
    assert torch.equal(torch.get_rng_state(), state)


def test_what_follows_a_layer_becomes_part_of_it():
    model = build_model("rposnet")
    pack(model, "int8")
    layer = model.decoder.layers[0]
    assert (layer.feed_forward.inner(torch.randn(40, 16)) >= 0).all()  # ReLU
    for projection in (layer.self_attn.gating.value_proj, layer.self_attn.gating.gate_proj):
        assert (projection(torch.randn(40, 16)) > -0.2).all()  # GELU
    assert model.encoder.embed_tokens is model.decoder.embed_tokens
    assert isinstance(model.encoder.embed_tokens, Int8Embedding)


@pytest.mark.parametrize(
    ("dtype", "is_available", "kind"),
    [("float32", True, PackedLinear), ("float32", False, PlainLinear), ("bf16", False, PlainLinear)],
)
def test_weights_are_packed_where_there_is_onednn(monkeypatch, dtype, is_available, kind):
    monkeypatch.setattr("torch.backends.mkldnn.is_available", lambda: is_available)
    model = build_model("rposnet")
    pack(model, dtype)
    assert isinstance(model.decoder.layers[0].feed_forward.inner, kind)
