import math

import pytest
import torch

from posnet_fairseq import build_mixer as build
from support import recurrences, reference
from support.building import build_mixer


def naive_ssru(mixer, x, y):
    """Kim et al. (2019) Section 3.1, by the recurrence itself; from the last token, c is read before it is written."""
    values, *gates = (x @ mixer.in_proj.weight.T).chunk(len(mixer.forget_bias) + 1, dim=1)

    def of_direction(direction):
        state, rows = torch.zeros(mixer.embed_dim, dtype=torch.float64), [None] * len(x)
        for n in reversed(range(len(x))) if direction else range(len(x)):
            forget = 1 / (1 + torch.exp(-(gates[direction][n] + mixer.forget_bias[direction])))
            kept = forget * state
            state = kept + (1 - forget) * values[n]
            rows[n] = kept if direction else state
        return torch.stack(rows)

    return recurrences.both_ways(mixer, of_direction).clamp(min=0)


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_equals_formula(place):
    reference.assert_equal_to_reference(build_mixer("ssru", place), naive_ssru)


def test_parameters_and_where_they_start():
    """2D² + D in a decoder, and one gate more in an encoder; each matrix is Xavier-uniform by itself."""
    for causal, gates in ((True, 1), (False, 2)):
        mixer = build("ssru", 32, 4, 16, causal=causal)
        assert sum(p.numel() for p in mixer.parameters()) == (1 + gates) * 32**2 + gates * 32
        assert not mixer.forget_bias.any()
        for matrix in mixer.in_proj.weight.split(32):
            assert 0.98 * math.sqrt(6 / 64) < matrix.abs().max() <= math.sqrt(6 / 64)


def test_closed_and_open_gates():
    """Gates that never forget keep nothing new; gates that always forget leave W x of the token alone."""
    mixer, x = build("ssru", 8, 2, 600, causal=True), torch.randn(2, 600, 8, requires_grad=True)
    for bias, expected in ((1e4, 0 * x), (-1e4, (x @ mixer.in_proj.weight[:8].T).relu())):
        torch.nn.init.constant_(mixer.forget_bias, bias)
        y = mixer(x)
        torch.testing.assert_close(y, expected)
        assert torch.autograd.grad(y.sum(), x)[0].isfinite().all()
