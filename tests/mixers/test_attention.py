import pytest
import reference
import torch
from building import build_mixer

from posnet_fairseq.gating import GATES
from posnet_fairseq.mixers._base import MixingContext


def naive_attention(mixer, x):
    """PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 1-3, scaled by the width of a head."""
    q = reference.split(x @ mixer.query_proj.weight.T + mixer.query_proj.bias, mixer.num_heads)
    k = reference.split(x @ mixer.key_proj.weight.T + mixer.key_proj.bias, mixer.num_heads)
    scale = mixer.head_dim**0.5
    energies = reference.masked(mixer, lambda h, n, m: q[h][n] @ k[h][m] / scale, len(x), len(x))
    return reference.mix_one_sentence(mixer, x, x, energies)


@pytest.mark.parametrize("place", ["encoder", "decoder"])
@pytest.mark.parametrize("gate", GATES)
def test_equals_formula(place, gate):
    lengths = reference.LENGTHS if gate == "none" else (1, 2, 7)
    reference.assert_equal_to_reference(build_mixer("attention", place, gate), naive_attention, lengths)


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_gradcheck(place):
    reference.assert_gradcheck(build_mixer("attention", place, "gelu", embed_dim=4))


@pytest.mark.parametrize("place", ["encoder", "decoder", "cross"])
def test_asking_for_weights_changes_nothing_and_they_are_the_ones_used(place):
    mixer = build_mixer("attention", place)
    query = torch.randn(2, 6, 8, dtype=torch.float64)
    memory = torch.randn(2, 9, 8, dtype=torch.float64) if place == "cross" else query
    padding = None if place == "decoder" else torch.arange(memory.size(1)) >= torch.tensor([[4], [9]])
    plain, nothing = mixer(query, memory, MixingContext(padding_mask=padding))
    same, weights = mixer(query, memory, MixingContext(padding_mask=padding, need_weights=True))
    assert nothing is None
    torch.testing.assert_close(same, plain)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 6, dtype=torch.float64))
    context = (weights @ mixer.value(memory, MixingContext())).transpose(1, 2).flatten(2)
    torch.testing.assert_close(mixer.out_proj(context), plain)
