import cmath

import pytest
import torch

from support import recurrences, reference
from support.building import build_mixer
from support.recurrences import rms, silu


def turned(x, n):
    """RoFormer (2021) Eq. 34: features i and i + d/2 of a head are a complex number, turned by n · 10000^(-2i/d)."""
    half = len(x) // 2
    turns = torch.tensor([cmath.exp(1j * n * 10000 ** (-i / half)) for i in range(half)], dtype=torch.complex128)
    product = torch.complex(x[:half], x[half:]) * turns
    return torch.cat([product.real, product.imag])


def naive_retention(mixer, x, y):
    """RetNet (Sun et al., 2023) Eqs. 5-8, in the encoder with distances in both directions."""
    q, k, v, g = (x @ mixer.in_proj.weight.T).split(mixer.widths, dim=1)
    q, k, v, g = (reference.split(each, mixer.num_heads) for each in (q, k, v, g))
    heads = []
    for h in range(mixer.num_heads):
        decay = 1 - 2.0 ** (-5 - h)
        queries = [turned(row, n) for n, row in enumerate(q[h])]
        keys = [turned(row, n) / mixer.head_dim**0.5 for n, row in enumerate(k[h])]
        rows = []
        for n in range(len(x)):
            seen = range(len(x)) if mixer.place == "encoder" else range(n + 1)
            mixed = sum(decay ** abs(n - m) * (queries[n] @ keys[m]) * v[h][m] for m in seen)
            rows.append(rms(mixed) * silu(g[h][n]))
        heads.append(torch.stack(rows))
    return torch.cat(heads, dim=1) @ mixer.out_proj.weight.T


@pytest.mark.parametrize("place", ["encoder", "decoder"])
@pytest.mark.parametrize("expand", [1, 2])
def test_equals_formula(place, expand):
    mixer = build_mixer("retention", place, expand=expand)
    reference.assert_equal_to_reference(mixer, naive_retention)


def test_closed_form_is_the_recurrence():
    """Σ_m γ^|n - m| (q_n·k_m) v_m is the sum over both directions."""
    q, k, v = torch.randn(3, 9, 4, dtype=torch.float64)
    decay = [0.9] * 9
    both = recurrences.recur(q, k, v, decay) + recurrences.recur(q, k, v, decay, backward=True)
    closed = torch.stack([sum(0.9 ** abs(n - m) * (q[n] @ k[m]) * v[m] for m in range(9)) for n in range(9)])
    torch.testing.assert_close(both, closed)


def test_parameters_are_those_of_the_table():
    """(2 + 3e) D²."""
    for expand in (1, 2):
        mixer = build_mixer("retention", expand=expand)
        assert sum(p.numel() for p in mixer.parameters()) == (2 + 3 * expand) * 8**2
