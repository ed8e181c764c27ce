import pytest
import reference
import torch
from building import build_mixer

from posnet_fairseq.gating import GATES


def positions(count):
    return torch.randn(count, 8, dtype=torch.float64, requires_grad=True)


def naive_aposnet(vectors):
    """PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 8."""

    def mix(mixer, x):
        q = [reference.split(p @ mixer.query_proj.weight.T + mixer.query_proj.bias, mixer.num_heads) for p in vectors]
        k = [reference.split(p @ mixer.key_proj.weight.T + mixer.key_proj.bias, mixer.num_heads) for p in vectors]
        scale = mixer.head_dim**0.5
        energies = reference.masked(mixer, lambda h, n, m: q[n][h] @ k[m][h] / scale, len(x), len(x))
        return reference.mix_one_sentence(mixer, x, x, energies)

    return mix


@pytest.mark.parametrize("place", ["encoder", "decoder"])
@pytest.mark.parametrize("gate", GATES)
def test_equals_formula(place, gate):
    lengths = reference.LENGTHS if gate == "gelu" else (1, 2, 7)
    p = positions(max(lengths))
    mixer = build_mixer("aposnet", place, gate)
    reference.assert_equal_to_reference(mixer, naive_aposnet(p), lengths, positions=p)


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_gradcheck(place):
    p = positions(4)[:, :4]
    mixer = build_mixer("aposnet", place, "gelu", embed_dim=4)
    reference.assert_gradcheck(mixer, positions=p)
