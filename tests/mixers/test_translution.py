import pytest
import torch
import torch.nn.functional as F

from posnet_fairseq.ops import offset_matmul
from posnet_fairseq.shared.errors import UsageError
from support import reference
from support.building import build_mixer, build_model

every_place = pytest.mark.parametrize("place", ["encoder", "decoder"])


def row(mixer, n, m):
    """Of the matrices of offset n - m."""
    offset = reference.clip(n - m, mixer.matrices.reaches[-1])
    return offset if mixer.place == "decoder" else offset + mixer.matrices.reaches[-1]


def naive_translution(mixer, x, _):
    """Translution (Fan et al., 2025) Eq. 1 in one dimension, App. C: every pair projects its own tokens."""
    ordinary = {
        "q": None if mixer.matrices.queries is not None else x @ mixer.query_proj.weight.T + mixer.query_proj.bias,
        "k": None if mixer.matrices.keys is not None else x @ mixer.key_proj.weight.T + mixer.key_proj.bias,
        "v": x if hasattr(mixer.gating.value_proj, "weight") is False else reference.values(mixer, x),
    }
    on = {"q": mixer.matrices.queries, "k": mixer.matrices.keys, "v": mixer.matrices.values}

    def projected(letter, n, m):
        token = n if letter == "q" else m
        tokens = x if ordinary[letter] is None else ordinary[letter]
        return tokens[token] if on[letter] is None else tokens[token] @ on[letter][row(mixer, n, m)]

    def of_head(letter, h, n, m):
        return projected(letter, n, m).chunk(mixer.num_heads)[h]

    def energy(h, n, m):
        return of_head("q", h, n, m) @ of_head("k", h, n, m) / mixer.head_dim**0.5

    weights = reference.softmax(reference.masked(mixer, energy, len(x), len(x)))
    heads = [
        torch.stack([sum(weights[h][n][m] * of_head("v", h, n, m) for m in seen(mixer, n, x)) for n in range(len(x))])
        for h in range(mixer.num_heads)
    ]
    context = torch.cat(heads, dim=-1) * reference.gate(mixer, x)
    return context @ mixer.out_proj.weight.T + mixer.out_proj.bias


def seen(mixer, n, x):
    return range(n + 1) if mixer.place == "decoder" else range(len(x))


@every_place
@pytest.mark.parametrize("clip", [1, 3, 63, None])
def test_equals_formula(place, clip):
    """Clipped, within the longest sentence and beyond it, and with a matrix for every offset."""
    mixer = build_mixer("translution", place, translution_clip=clip)
    reference.assert_equal_to_reference(mixer, naive_translution, (1, 2, 7, 20))


@every_place
@pytest.mark.parametrize("gate", ["none", "gelu"])
@pytest.mark.parametrize("on", ["qkv", "qk", "qv", "kv", "q", "k", "v"])
def test_equals_formula_on_some_projections(place, gate, on):
    mixer = build_mixer("translution", place, gate, translution_clip=3, translution_on=on)
    reference.assert_equal_to_reference(mixer, naive_translution, reference.SHORT)


@every_place
def test_with_weights_of_one_in_a_window_it_is_a_convolution(place):
    """Translution Section 3.3: convolution is attention with weights 1 inside the receptive field and 0 outside."""
    reach, length = 2, 9
    matrices = build_mixer("translution", place, translution_clip=reach + 1).matrices
    causal = place == "decoder"
    offsets = torch.arange(length)[:, None] - torch.arange(length)
    window = (offsets.abs() <= reach) & ((offsets >= 0) | (not causal))
    x = torch.randn(2, length, 8, dtype=torch.float64)
    heads = x.view(2, length, 2, 4).transpose(1, 2)
    mixed = matrices.mix(window.double().expand(2, 2, -1, -1), heads).transpose(1, 2).flatten(2)

    table = matrices.values[: reach + 1] if causal else matrices.values[1:-1]
    kernel = table.flip(0).permute(2, 1, 0)  # from the leftmost token on: the largest offset first
    padded = F.pad(x.transpose(1, 2), (reach, 0 if causal else reach))
    torch.testing.assert_close(mixed, F.conv1d(padded, kernel).transpose(1, 2))


def test_layers_after_the_first_ones_have_attention():
    model = build_model("translution", translution_layers=1)
    for layers in (model.encoder.layers, model.decoder.layers):
        assert [layer.self_attn.name for layer in layers] == ["translution", "attention"]


def test_words_have_no_position_embedding_unless_it_is_asked_for():
    assert build_model("translution").encoder.positions.weight is None
    assert build_model("translution", position_embedding="sinusoidal").encoder.positions.weight is not None


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("clip", [1, 2, 9])
def test_derivatives_of_products_by_offset(clip, causal):
    """Also where queries and keys are one tensor, and keys have no matrices."""
    rows, (length, batch, width, heads) = (clip + 1 if causal else 2 * clip + 1), (3, 1, 2, 2)

    def random(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    tokens, others, table = random(length, batch, width), random(length, batch, width), random(rows, width, width)
    weights = random(batch, heads, length, length)
    for function, arguments in (
        (lambda q, w, k: offset_matmul.energies(q, w, k, w * 2, heads, (clip,), causal), (tokens, table, others)),
        (lambda x, w: offset_matmul.energies(x, w, x, None, heads, (clip,), causal), (tokens, table)),
        (lambda a, v, w: offset_matmul.mixture(a, v, w, (clip,), causal), (weights, others, table)),
    ):
        assert torch.autograd.gradcheck(function, arguments)
        with pytest.raises(UsageError, match="create_graph=True: this layer has no second derivatives"):
            torch.autograd.grad(function(*arguments).sum(), arguments, create_graph=True)
