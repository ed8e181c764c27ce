import pytest
import torch

from posnet_fairseq.registry import get_mixer
from support import reference
from support.building import build_mixer, settings


def naive_gpsa(mixer, x, y):
    """ConViT (d'Ascoli et al., 2021) Eqs. 5-8 with r = (δ², δ)."""
    q, k = reference.content(mixer, x, y)
    w = mixer.position_weight
    of_tokens = reference.masked(mixer, lambda h, n, m: q[h][n] @ k[h][m] / mixer.head_dim**0.5, len(x), len(y))
    of_positions = reference.masked(mixer, lambda h, n, m: w[h, 0] * (n - m) ** 2 + w[h, 1] * (n - m), len(x), len(y))
    content, position = reference.softmax(of_tokens), reference.softmax(of_positions)
    gates = 1 / (1 + torch.exp(-mixer.gate))
    weights = [
        [(1 - gates[h]) * content[h][n] + gates[h] * position[h][n] for n in range(len(x))]
        for h in range(mixer.num_heads)
    ]
    return reference.mix_one_sentence(mixer, x, y, weights)


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_equals_formula(place):
    reference.assert_equal_to_reference(build_mixer("gpsa", place), naive_gpsa)


def test_heads_start_at_their_neighbors():
    mixer = get_mixer("gpsa")(settings("gpsa", "encoder", num_heads=4)).eval()
    with torch.no_grad():
        mixer.gate.fill_(50)  # positions only
    x = torch.randn(1, 9, 8)
    _, weights = mixer(x, x, need_weights=True)
    assert weights[0, :, 4].argmax(-1).tolist() == [3, 4, 5, 3]
