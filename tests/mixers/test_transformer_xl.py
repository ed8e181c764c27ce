import pytest

from support import reference
from support.building import build_mixer
from support.formulas import sinusoid


def naive_transformer_xl(mixer, x, y):
    """iRPE (Wu et al., ICCV 2021) Eq. 10."""
    heads, width = mixer.num_heads, mixer.embed_dim
    q, k = reference.content(mixer, x, y)
    u, v = reference.split(mixer.content_bias, heads), reference.split(mixer.position_bias, heads)

    def energy(h, n, m):
        r = reference.split(mixer.relative_proj.weight @ sinusoid(n - m, width), heads)
        return ((q[h][n] + u[h]) @ k[h][m] + (q[h][n] + v[h]) @ r[h]) / mixer.head_dim**0.5

    return reference.attend(mixer, x, y, energy)


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_equals_formula(place):
    reference.assert_equal_to_reference(build_mixer("transformer_xl", place), naive_transformer_xl)
