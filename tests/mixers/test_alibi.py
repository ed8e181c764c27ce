import pytest
import torch

from support import reference
from support.building import build_mixer


def naive_alibi(mixer, x, y):
    """Press et al. (2022), unnumbered Eq. of Section 3."""
    q, k = reference.content(mixer, x, y)

    def energy(h, n, m):
        slope = 2 ** (-8 * (h + 1) / mixer.num_heads)
        return q[h][n] @ k[h][m] / mixer.head_dim**0.5 - slope * abs(reference.at(mixer, n) - m)

    return reference.attend(mixer, x, y, energy)


@pytest.mark.parametrize("heads", [2, 3])
@pytest.mark.parametrize("place", ["encoder", "decoder", "cross"])
def test_equals_formula(place, heads):
    reference.assert_equal_to_reference(build_mixer("alibi", place, embed_dim=12, num_heads=heads), naive_alibi)


def test_an_encoder_without_positions_reads_a_reversed_sentence_alike():
    """As docs/mixers/alibi.md says; a decoder does not, which sees the past only."""
    for place, alike in (("encoder", True), ("decoder", False)):
        mixer, x = build_mixer("alibi", place), torch.randn(1, 5, 8, dtype=torch.float64)
        assert torch.allclose(mixer(x).flip(1), mixer(x.flip(1))) is alike
