import math

import pytest
import torch

from support import reference
from support.building import build_mixer


def naive_gaussiannet(mixer, x, y):
    """PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 12, σ = 1; heads look left, at themselves, right, and so on."""
    cycle = (-1, 0, 1) if mixer.place == "encoder" else (-1, 0)

    def weight(h, n, m):
        distance = m - (n + cycle[h % len(cycle)])
        return torch.tensor(math.exp(-(distance**2) / 2) / math.sqrt(2 * math.pi), dtype=torch.float64)

    weights = reference.masked(mixer, weight, len(x), len(y), hidden=0.0)
    return reference.mix_one_sentence(mixer, x, y, weights)


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_equals_formula(place):
    mixer = build_mixer("gaussiannet", place, num_heads=4)
    reference.assert_equal_to_reference(mixer, naive_gaussiannet)
