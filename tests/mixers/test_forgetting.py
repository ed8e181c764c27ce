import math

import pytest
import torch

from posnet_fairseq import build_mixer as build
from support import reference
from support.building import build_mixer


def naive_forgetting(mixer, x, y):
    """Lin et al. (2025) Eqs. 5-7: the gates of the tokens after the earlier one, up to the later one."""
    q, k = reference.content(mixer, x, y)
    gates = 1 / (1 + torch.exp(-(x @ mixer.forget_proj.weight.T + mixer.forget_proj.bias)))

    def energy(h, n, m):
        decay = sum(gates[step, h].log() for step in range(min(n, m) + 1, max(n, m) + 1))
        return q[h][n] @ k[h][m] / mixer.head_dim**0.5 + decay

    return reference.attend(mixer, x, y, energy)


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_equals_formula(place):
    reference.assert_equal_to_reference(build_mixer("forgetting", place), naive_forgetting)


def test_gates_start_at_one_half():
    mixer = build("forgetting", 8, 2, 16)
    assert not mixer.forget_proj.bias.any()
    assert mixer.forget_proj.weight.abs().max() <= math.sqrt(6 / (8 + 2))  # Xavier-uniform


def test_what_is_forgotten_is_not_rounded_to_16_bits():
    """The sums of log gates of 500 tokens are about -350, where bfloat16 has steps of 2: differences need float32."""
    torch.manual_seed(1)
    mixer = build("forgetting", 8, 2, 600, causal=True).eval()
    x = torch.randn(1, 500, 8).bfloat16()
    with torch.no_grad():
        expected = mixer(x.float())
        found = mixer.bfloat16()(x)
        state = mixer.init_state(1)
        steps = torch.cat([mixer.step(x[:, n : n + 1], state) for n in range(500)], dim=1)
    for result in (found, steps):
        torch.testing.assert_close(result.float()[:, -20:], expected[:, -20:], rtol=0.05, atol=0.03)
