"""Dropout by 16-bit random numbers: what is dropped, how often, and with which gradients."""

import pytest
import torch

from posnet_fairseq.ops.dropout import Dropout, dropout

SIZE = 2**20 + 3  # not a multiple of the numbers in a word


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 2**-10])
def test_distribution(p):
    x = torch.ones(SIZE)
    y = dropout(x, p)
    deviation = (p * (1 - p) / SIZE) ** 0.5  # of the share of zeros
    assert abs((y == 0).float().mean().item() - p) < 4 * deviation + 2**-17
    kept = y[y != 0]
    assert kept.min() == kept.max()
    assert kept[0].item() == pytest.approx(1 / (1 - p), abs=2**-15)
    # Expectations are exact: what stays is divided by the probability that 16 bits have.
    assert kept[0].item() * (1 - round(p * 2**16) / 2**16) == pytest.approx(1, abs=1e-6)


def test_neighbors_are_independent():
    zeros = (dropout(torch.ones(SIZE), 0.5) == 0).float() - 0.5
    for distance in (1, 2, 3, 4, 8):
        assert abs((zeros[distance:] * zeros[:-distance]).mean().item()) < 4 * 0.25 / SIZE**0.5
    assert not torch.equal(dropout(torch.ones(64), 0.5), dropout(torch.ones(64), 0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradients_and_the_sum_with_a_residual(dtype):
    x = torch.randn(6, 50, dtype=dtype, requires_grad=True)
    residual = torch.randn(6, 50, dtype=dtype, requires_grad=True)
    torch.manual_seed(3)
    y = dropout(x, 0.4)
    torch.manual_seed(3)
    added = Dropout(0.4, "").add(residual, x)
    assert y.dtype == added.dtype == dtype
    torch.testing.assert_close(added, residual + y, rtol=2e-2 if dtype == torch.bfloat16 else 1e-6, atol=1e-2)
    factors = y.detach() / x.detach()
    upstream = torch.randn_like(x)
    close = {"rtol": 1e-2 if dtype == torch.bfloat16 else 1e-5, "atol": 1e-5}
    torch.testing.assert_close(torch.autograd.grad(y, x, upstream)[0], upstream * factors, **close)
    of_residual, of_x = torch.autograd.grad(added, [residual, x], upstream)
    torch.testing.assert_close(of_x, upstream * factors, **close)
    assert torch.equal(of_residual, upstream)


@pytest.mark.parametrize("p", [0, 1e-9, 1 - 1e-9, 1])
def test_extreme_probabilities(p):
    x = torch.randn(5, 7)
    expected = torch.zeros(5, 7) if p > 0.5 else x
    torch.testing.assert_close(dropout(x, p), expected)
    torch.testing.assert_close(Dropout(p, "").add(x, x), x + expected)


def test_other_shapes():
    assert dropout(torch.ones(0, 3), 0.5).shape == (0, 3)
    assert dropout(torch.tensor(2.0), 0.5).item() in (0, 4)
    expanded = torch.ones(1, 2, 1).expand(50, -1, 40)
    y = dropout(expanded, 0.5)
    assert len(y.flatten(1).unique(dim=0)) > 40, "each sentence has its own"
