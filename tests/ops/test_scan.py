"""Recurrences of features against plain loops."""

import pytest
import torch
from torch.autograd import grad, gradcheck, gradgradcheck

from posnet_fairseq.ops.scan import scan


def slow_scan(decay, added, reverse):
    rows = [None] * added.size(1)
    last = torch.zeros_like(added[:, 0])
    for n in reversed(range(len(rows))) if reverse else range(len(rows)):
        last = rows[n] = decay[:, n] * last + added[:, n]
    return torch.stack(rows, dim=1)


def inputs(*shape):
    made = torch.rand(*shape, dtype=torch.float64), torch.randn(*shape, dtype=torch.float64)
    return [x.requires_grad_() for x in made]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 13])
def test_scan_is_the_loop(length, reverse):
    given = inputs(3, length, 5)
    results = [function(*given, reverse) for function in (scan, slow_scan)]
    torch.testing.assert_close(*results)
    cotangent = torch.randn_like(results[0])
    torch.testing.assert_close(*(grad(result, given, cotangent) for result in results))


@pytest.mark.parametrize("reverse", [False, True])
def test_derivatives_of_a_scan(reverse):
    """First and second ones against differences, and of the decays alone."""
    given = inputs(2, 4, 3)
    assert gradcheck(lambda decay, added: scan(decay, added, reverse), given)
    assert gradgradcheck(lambda decay, added: scan(decay, added, reverse), given)
    assert gradcheck(lambda decay: scan(decay, given[1].detach(), reverse), given[:1])
