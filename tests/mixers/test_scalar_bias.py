import pytest
import torch

from posnet_fairseq.mixers.bases.content_based import ContentBasedMixer
from posnet_fairseq.mixers.scalar_bias import ScalarBias
from posnet_fairseq.ops import kernels
from support import reference
from support.building import build_mixer
from support.formulas import piecewise


def naive_scalar_bias(mixer, x, y):
    """Translution (2025) Appendix E, relative positional scalar: a number of each head for every offset."""
    q, k = reference.content(mixer, x, y)
    limit, row = mixer.buckets.distance, piecewise if mixer.buckets.kind == "piecewise" else reference.clip

    def energy(h, n, m):
        return q[h][n] @ k[h][m] / mixer.head_dim**0.5 + mixer.bias[h, row(n - m, limit) + limit]

    return reference.attend(mixer, x, y, energy)


@pytest.mark.parametrize("place", ["encoder", "decoder"])
@pytest.mark.parametrize("index", ["clip", "piecewise"])
def test_equals_formula(place, index):
    mixer = build_mixer("scalar_bias", place, clip_distance=3, scalar_bias_index=index)
    reference.assert_equal_to_reference(mixer, naive_scalar_bias)


class Capped(ScalarBias):
    """As a mixer of one's own."""

    def energy(self, q, k, index):
        return super().energy(q, k, index).tanh()


def test_kernels_are_for_the_usual_energy_only(monkeypatch):
    x, mixer, capped = torch.randn(2, 5, 8, dtype=torch.float64), build_mixer("scalar_bias"), build_mixer("scalar_bias")
    capped.__class__ = Capped
    before = mixer(x), capped(x)
    monkeypatch.setattr(kernels, "are_used", lambda q: True)
    monkeypatch.setattr(ContentBasedMixer, "_mix_by_kernels", lambda self, q, *_: torch.zeros_like(q))
    assert not torch.equal(mixer(x), before[0])
    assert torch.equal(capped(x), before[1])
