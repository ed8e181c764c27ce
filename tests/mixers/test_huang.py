import pytest

from support import reference
from support.building import build_mixer


def naive_huang(mixer, x, y):
    """iRPE (Wu et al., ICCV 2021) Eq. 11."""
    q, k = reference.content(mixer, x, y)
    table, limit = reference.split(mixer.relative, mixer.num_heads), mixer.buckets.distance

    def energy(h, n, m):
        p = table[h][reference.clip(n - m, limit) + limit]
        return ((q[h][n] + p) @ (k[h][m] + p) - p @ p) / mixer.head_dim**0.5

    return reference.attend(mixer, x, y, energy)


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_equals_formula(place):
    reference.assert_equal_to_reference(build_mixer("huang", place, clip_distance=3), naive_huang)
