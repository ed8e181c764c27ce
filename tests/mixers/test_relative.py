import pytest

from posnet_fairseq.mixers.bases.mixer_settings import PLACES
from support import reference
from support.building import build_mixer


def naive_relative(mixer, x, y):
    """PosNet (Schmidt and Di Gangi, WMT 2023) Section 7.1: Eq. 9 with the token in place of its position."""
    q = reference.project(x, mixer.query_proj, mixer.num_heads)
    table, limit = reference.split(mixer.relative_key, mixer.num_heads), mixer.buckets.distance

    def energy(h, n, m):
        offset = reference.clip(reference.at(mixer, n) - m, limit)
        return q[h][n] @ table[h][offset + limit] / mixer.head_dim**0.5

    return reference.attend(mixer, x, y, energy)


@pytest.mark.parametrize("place", PLACES)
def test_equals_formula(place):
    mixer = build_mixer("relative", place, clip_distance=3)
    reference.assert_equal_to_reference(mixer, naive_relative)
