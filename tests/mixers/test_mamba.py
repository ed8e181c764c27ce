import math

import pytest
import torch

from posnet_fairseq import build_mixer as build
from support import recurrences, reference
from support.building import build_mixer
from support.recurrences import silu


def naive_mamba(mixer, x, y):
    """Mamba (Gu and Dao, 2023) Eq. 2 and Algorithm 2, by the recurrence itself."""
    width, rank = 2 * mixer.embed_dim, math.ceil(mixer.embed_dim / 16)
    features, z = (x @ mixer.in_proj.weight.T).split(width, dim=1)
    convolved = [
        recurrences.convolve(features, own.convolution, backward=direction == 1)
        for direction, own in enumerate(mixer.by_direction)
    ]

    def of_direction(direction):
        own, inner = mixer.by_direction[direction], convolved[direction]
        delta, b, c = (inner @ own.inner_proj.weight.T).split([rank, 16, 16], dim=1)
        steps = torch.log(1 + torch.exp(delta @ own.step_proj.weight.T + own.step_bias))
        rates = -torch.exp(own.log_rate)
        state, rows = torch.zeros(16, width, dtype=torch.float64), [None] * len(x)
        for n in reversed(range(len(x))) if direction else range(len(x)):
            kept = torch.exp(steps[n] * rates) * state
            state = kept + torch.outer(b[n], steps[n] * inner[n])
            rows[n] = c[n] @ (kept if direction else state)
        return torch.stack(rows)

    mixed = recurrences.both_ways(mixer, of_direction) + mixer.skip * convolved[0]
    return (mixed * silu(z)) @ mixer.out_proj.weight.T


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_equals_formula(place):
    reference.assert_equal_to_reference(build_mixer("mamba", place, embed_dim=4), naive_mamba)


def test_parameters():
    """6D² and D; W_x, W_Δ with its bias, A and the convolution with its bias in each direction, C = 2D, R = ⌈D/16⌉."""
    for width, rank in ((32, 2), (40, 3)):
        channels = 2 * width
        own = channels * (rank + 32) + channels * (rank + 1) + 16 * channels + 5 * channels
        for causal, directions in ((True, 1), (False, 2)):
            mixer = build("mamba", width, 4, 16, causal=causal)
            assert sum(p.numel() for p in mixer.parameters()) == 6 * width**2 + channels + directions * own
            assert own == (108 + 4 * rank) * width


def test_decays_start_as_in_the_paper():
    """Rates 1 ... 16 of every feature, steps between .001 and .1, D at 1."""
    mixer = build("mamba", 256, 4, 16)
    for own in mixer.by_direction:
        torch.testing.assert_close(own.log_rate.exp(), torch.arange(1.0, 17)[:, None].expand(16, 512))
        steps = torch.nn.functional.softplus(own.step_bias)
        assert 0.00099 < steps.min() < 0.002
        assert 0.05 < steps.max() < 0.101
        assert 0.24 < own.step_proj.weight.abs().max() <= 0.25  # R = 16
    assert (mixer.skip == 1).all()
