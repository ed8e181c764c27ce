"""The softmax over few keys is torch's, in values and in gradients, also where whole queries are masked."""

import pytest
import torch

from posnet_fairseq.ops.masking import masked_energy, softmax


def energies(keys, queries=2048):
    energy = 3 * torch.randn(2, queries // 2, keys)
    energy[0, :, keys // 2 + 1 :] = masked_energy(energy.dtype)
    energy[1, 0] = masked_energy(energy.dtype)
    energy[1, 1] += 1e4
    return energy.requires_grad_()


@pytest.mark.parametrize("keys", [1, 2, 7, 8, 15, 16, 40])
def test_values_and_gradients(keys):
    energy = energies(keys)
    exact = energy.detach().double().requires_grad_()
    found, expected = softmax(energy), exact.softmax(dim=-1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-7)
    upstream = torch.randn_like(found)
    found.backward(upstream)
    expected.backward(upstream.double())
    torch.testing.assert_close(energy.grad.double(), exact.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("keys", "queries", "is_by_passes"), [(7, 2048, True), (7, 100, False), (16, 2048, False)])
def test_torchs_own_is_taken_where_it_is_fast(keys, queries, is_by_passes):
    found = softmax(energies(keys, queries))
    assert ("Div" in type(found.grad_fn).__name__) == is_by_passes


def test_gradients_have_derivatives():
    energy = energies(4)

    def second(weights, energy):
        (gradient,) = torch.autograd.grad(weights.pow(2).sum(), energy, create_graph=True)
        return torch.autograd.grad(gradient.sin().sum(), energy)[0]

    exact = energy.detach().double().requires_grad_()
    expected = second(exact.softmax(dim=-1), exact)
    torch.testing.assert_close(second(softmax(energy), energy).double(), expected, rtol=1e-4, atol=1e-5)
