import pytest
import torch

from support import reference
from support.building import build_mixer
from support.formulas import piecewise

every_place = pytest.mark.parametrize("place", ["encoder", "decoder"])
every_index = pytest.mark.parametrize("index", ["clip", "piecewise"])


def naive_scalar_bias(mixer, x, y):
    """Translution (2025) Appendix E, relative positional scalar: a number of each head for every offset."""
    q, k = reference.content(mixer, x, y)
    limit, row = mixer.buckets.distance, piecewise if mixer.buckets.kind == "piecewise" else reference.clip

    def energy(h, n, m):
        return q[h][n] @ k[h][m] / mixer.head_dim**0.5 + mixer.bias[h, row(n - m, limit) + limit]

    return reference.attend(mixer, x, y, energy)


@every_place
@every_index
def test_equals_formula(place, index):
    mixer = build_mixer("scalar_bias", place, clip_distance=3, scalar_bias_index=index)
    reference.assert_equal_to_reference(mixer, naive_scalar_bias)


@every_place
def test_gradcheck(place):
    reference.assert_gradcheck(build_mixer("scalar_bias", place, "gelu", embed_dim=4, clip_distance=2))


@every_place
@every_index
def test_is_the_bias_mode_of_irpe(place, index):
    """iRPE divides its scalars by √d as well."""
    ours = build_mixer("scalar_bias", place, clip_distance=4, scalar_bias_index=index)
    irpe = build_mixer("irpe", place, irpe_mode="bias", irpe_beta=4, irpe_index=index)
    shared = {name: p for name, p in irpe.named_parameters() if name != "bias"}
    ours.load_state_dict(ours.state_dict() | shared | {"bias": irpe.bias / irpe.head_dim**0.5})
    x = torch.randn(3, 20, 8, dtype=torch.float64)
    torch.testing.assert_close(ours(x, x), irpe(x, x))
