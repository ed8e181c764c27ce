import pytest
import torch

from posnet_fairseq import build_mixer as build
from posnet_fairseq.shared.errors import UsageError
from support import reference
from support.building import build_mixer


def naive_differential(mixer, x, y):
    """Ye et al. (2025) Eqs. 1-3, with heads of queries and keys in pairs."""
    q, k = reference.content(mixer, x, y)
    pairs = mixer.num_heads // 2
    initial = mixer.settings.options.lambda_init
    first, second = ((mixer.lambda_query[i] @ mixer.lambda_key[i]).exp() for i in range(2))
    weight = first - second + initial
    softmaxes = reference.softmax(
        reference.masked(mixer, lambda h, n, m: q[h][n] @ k[h][m] / mixer.head_dim**0.5, len(x), len(y))
    )
    values = reference.split(reference.values(mixer, y), pairs)
    rows = []
    for n in range(len(x)):
        mixed = []
        for pair, v in enumerate(values):
            one, other = softmaxes[2 * pair][n], softmaxes[2 * pair + 1][n]
            row = sum((one[m] - weight * other[m]) * v[m] for m in range(len(y)))
            mixed.append((1 - initial) * mixer.norm_scale * row / (row.square().mean() + 1e-5).sqrt())
        rows.append(torch.cat(mixed))
    context = torch.stack(rows) * reference.gate(mixer, x)
    return context @ mixer.out_proj.weight.T + mixer.out_proj.bias


@pytest.mark.parametrize("lambda_init", [0.8, 0.0])
@pytest.mark.parametrize("place", ["encoder", "decoder", "cross"])
def test_equals_formula(place, lambda_init):
    mixer = build_mixer("differential", place, embed_dim=8, num_heads=4, lambda_init=lambda_init)
    reference.assert_equal_to_reference(mixer, naive_differential, lengths=reference.SHORT)


def test_lambda_starts_at_its_initial_value():
    mixer = build("differential", 512, 2, 16)
    vectors = torch.stack([mixer.lambda_query, mixer.lambda_key])
    assert vectors.shape == (2, 2, 256)
    assert 0.08 < vectors.std() < 0.12
    assert mixer.norm_scale.tolist() == [1] * 512
    attention = sum(p.numel() for p in build("attention", 512, 2, 16).parameters())
    assert sum(p.numel() for p in mixer.parameters()) == attention + 4 * 256 + 2 * 256


def test_heads_are_paired():
    with pytest.raises(UsageError, match=r"^--decoder-attention-heads 3: differential subtracts .* an even number"):
        build_mixer("differential", "cross", embed_dim=6, num_heads=3)
    with pytest.raises(UsageError, match=r"^num_heads 1: differential subtracts"):
        build("differential", 8, 1, 16)
    with pytest.raises(UsageError, match=r"^lambda_init 1\.0: give 0 or more, and at most 0\.99"):
        build("differential", 8, 2, 16, lambda_init=1.0)
