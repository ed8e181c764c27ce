import cmath

import pytest
import torch

from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.ops.fourier import real_transform
from posnet_fairseq.shared.errors import UsageError
from support import reference
from support.building import build_mixer


def wave(steps, length):
    return cmath.exp(-2j * cmath.pi * steps / length)


def naive_fouriernet(mixer, x, y):
    """FNet in one dimension, as the PosNet paper (Schmidt and Di Gangi, WMT 2023, Section 2.2) has it."""
    length = len(y)
    row = [
        torch.tensor([wave(n * m, length).real / length**0.5 for m in range(length)], dtype=torch.float64)
        for n in range(length)
    ]
    return reference.mix_one_sentence(mixer, x, y, [row] * mixer.num_heads)


def naive_fnet(mixer, x, y):
    """PosNet Eq. 11: the real part of a transform over features, then positions."""
    length, width = y.shape
    over_features = _transform(width)
    over_positions = _transform(length)
    return (over_positions @ (y.to(torch.complex128) @ over_features.T)).real


def _transform(size):
    return torch.tensor([[wave(a * b, size) for b in range(size)] for a in range(size)], dtype=torch.complex128)


@pytest.mark.parametrize("gate", GATES)
def test_equals_formula(gate):
    # Two sentences of the same length go through one transform.
    lengths = (1, 2, 7, 63, 7) if gate == "none" else reference.SHORT
    reference.assert_equal_to_reference(build_mixer("fouriernet", gate=gate), naive_fouriernet, lengths)


def test_fnet_equals_formula_and_trains_nothing():
    mixer = build_mixer("fouriernet", fourier_2d=True)
    assert list(mixer.parameters()) == []
    reference.assert_equal_to_reference(mixer, naive_fnet)


def test_a_gate_needs_values():
    with pytest.raises(UsageError, match=r"^gate gelu: with --fourier-2d there are no values to gate"):
        build_mixer("fouriernet", gate="gelu", fourier_2d=True)


@pytest.mark.parametrize("length", [1, 2, 127, 128, 129, 130, 257])
def test_both_forms_are_the_transform(length):
    """Short sentences by a product, long ones by a fast transform."""
    x = torch.randn(3, length, 4, dtype=torch.float64, requires_grad=True)
    expected = torch.fft.fft(x, dim=1).real / length**0.5
    torch.testing.assert_close(real_transform(x), expected)
    cotangent = torch.randn_like(x)
    gradients = [torch.autograd.grad(y, x, cotangent)[0] for y in (real_transform(x), expected)]
    torch.testing.assert_close(*gradients)
