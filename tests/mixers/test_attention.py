from unittest import mock

import pytest
import torch
import torch.nn.functional as F

from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.mixers.bases.mixer_settings import PLACES
from support import reference
from support.building import build_mixer

every_place = pytest.mark.parametrize("place", PLACES)


def naive_attention(mixer, x, y):
    """PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 1-3, scaled by the width of a head."""
    q, k = reference.content(mixer, x, y)
    return reference.attend(mixer, x, y, lambda h, n, m: q[h][n] @ k[h][m] / mixer.head_dim**0.5)


@every_place
@pytest.mark.parametrize("gate", GATES)
def test_equals_formula(place, gate):
    lengths = reference.LENGTHS if gate == "none" else reference.SHORT
    reference.assert_equal_to_reference(build_mixer("attention", place, gate), naive_attention, lengths)


@every_place
def test_asking_for_weights_changes_nothing_and_they_are_the_ones_used(place):
    mixer = build_mixer("attention", place)
    query = torch.randn(2, 6, 8, dtype=torch.float64)
    memory = torch.randn(2, 9, 8, dtype=torch.float64) if place == "cross" else query
    padding = None if place == "decoder" else torch.arange(memory.size(1)) >= torch.tensor([[4], [9]])
    plain = mixer(query, memory, padding_mask=padding)
    same, weights = mixer(query, memory, padding_mask=padding, need_weights=True)
    torch.testing.assert_close(same, plain)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 6, dtype=torch.float64))
    context = (weights @ mixer.value(memory, MixingContext())).transpose(1, 2).flatten(2)
    torch.testing.assert_close(mixer.out_proj(context), plain)


@every_place
def test_the_slow_backward_pass_of_16_bits_is_avoided(place):
    """On CPUs, that of torch's kernel takes several times as long as plain products; its forward pass does not."""
    mixer = build_mixer("attention", place)
    tokens = [torch.randn(2, length, 8, dtype=torch.float64) for length in ([6, 9] if place == "cross" else [6])]
    exact, halves = mixer(*tokens), [x.bfloat16() for x in tokens]
    with mock.patch.object(F, "scaled_dot_product_attention", wraps=F.scaled_dot_product_attention) as kernel:
        mixer.float()
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(mixer(*(x.float() for x in tokens)).double(), exact, rtol=0.03, atol=0.03)
        mixer.bfloat16()
        torch.testing.assert_close(mixer(*halves).double(), exact, rtol=0.03, atol=0.03)
        kernel.assert_not_called()
        with torch.no_grad():
            mixer(*halves)
        kernel.assert_called_once()
