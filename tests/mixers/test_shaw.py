import pytest

from posnet_fairseq.mixers.bases.mixer_settings import PLACES
from support import reference
from support.building import build_mixer


def naive_shaw(mixer, x, y):
    """Shaw et al. (2018) Eqs. 3-5: a vector for every pair, added to its key and to its value."""
    q, k = reference.content(mixer, x, y)
    on_keys = reference.split(mixer.relative_key, mixer.num_heads)

    def row(n, m):
        return reference.clip(reference.at(mixer, n) - m, mixer.buckets.distance) + mixer.buckets.distance

    def energy(h, n, m):
        return q[h][n] @ (k[h][m] + on_keys[h][row(n, m)]) / mixer.head_dim**0.5

    if mixer.relative_value is None:
        return reference.attend(mixer, x, y, energy)
    on_values = reference.split(mixer.relative_value, mixer.num_heads)
    return reference.attend(mixer, x, y, energy, lambda h, n, m: on_values[h][row(n, m)])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("values", [False, True])
def test_equals_formula(place, values):
    mixer = build_mixer("shaw", place, clip_distance=3, shaw_values=values)
    reference.assert_equal_to_reference(mixer, naive_shaw)
