import pytest
import torch

from posnet_fairseq.mixers.bases.mixer_settings import PLACES
from support import reference
from support.building import build_mixer

every_place = pytest.mark.parametrize("place", PLACES)


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


@every_place
@pytest.mark.parametrize("values", [False, True])
def test_equals_formula(place, values):
    mixer = build_mixer("shaw", place, clip_distance=3, shaw_values=values)
    reference.assert_equal_to_reference(mixer, naive_shaw)


@every_place
def test_gradcheck(place):
    mixer = build_mixer("shaw", place, "gelu", embed_dim=4, clip_distance=2, shaw_values=True)
    reference.assert_gradcheck(mixer)


@every_place
def test_without_relative_vectors_it_is_attention(place):
    shaw, attention = build_mixer("shaw", place, shaw_values=True), build_mixer("attention", place)
    with torch.no_grad():
        shaw.relative_key.zero_()
        shaw.relative_value.zero_()
    attention.load_state_dict({name: p for name, p in shaw.named_parameters() if "relative" not in name}, strict=False)
    x, y = torch.randn(2, 3, 7, 8, dtype=torch.float64)
    memory = y if place == "cross" else x
    torch.testing.assert_close(shaw(x, memory), attention(x, memory))
