import pytest

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
