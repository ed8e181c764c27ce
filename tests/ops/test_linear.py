"""Linear layers by oneDNN are torch's, in values and in gradients."""

import pytest
import torch
import torch.nn.functional as F

from posnet_fairseq.ops import linear as module
from posnet_fairseq.ops.linear import Linear, linear

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
ROWS = (4, 600)


@pytest.fixture(autouse=True)
def _processor_that_gains(monkeypatch):
    monkeypatch.setattr(module, "onednn_is_faster", lambda: True)


def is_by_onednn(y):
    return "OneDnn" in type(y.grad_fn).__name__


def arguments(inputs, outputs, bias=True):
    x, weight = torch.randn(*ROWS, inputs, requires_grad=True), torch.randn(outputs, inputs, requires_grad=True)
    return x, weight, torch.randn(outputs, requires_grad=True) if bias else None


def gradients(function, given, upstream=None):
    """The output and the gradients of a function of some tensors, in double precision where these are."""
    y = function(*given)
    upstream = torch.sin(torch.arange(y.numel(), dtype=y.dtype)).view_as(y) if upstream is None else upstream(y)
    return y, torch.autograd.grad(
        y, [tensor for tensor in given if tensor is not None and tensor.requires_grad], upstream
    )


def doubled(given):
    return [
        None if tensor is None else tensor.detach().double().requires_grad_(tensor.requires_grad) for tensor in given
    ]


def assert_equal_to_torch(given, upstream=None):
    y, found = gradients(linear, given, upstream)
    expected_y, expected = gradients(F.linear, doubled(given), upstream)
    assert is_by_onednn(y)
    torch.testing.assert_close(y.double(), expected_y, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3, check_dtype=False)


def constant(y):
    return torch.ones(1, dtype=y.dtype).expand_as(y)


@pytest.mark.parametrize("upstream", [None, torch.ones_like, constant])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), [(48, 48), (32, 112), (112, 32)])
def test_equal_to_torch(inputs, outputs, bias, upstream):
    assert_equal_to_torch(arguments(inputs, outputs, bias), upstream)


@pytest.mark.parametrize("layout", ["transposed", "a part", "frozen weight", "frozen input"])
def test_other_arguments(layout):
    x, weight, bias = arguments(48, 64)
    if layout == "transposed":
        x = x.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
        weight = weight.detach().T.contiguous().T.requires_grad_()
    elif layout == "a part":
        x = torch.cat([x, x], dim=2).detach()[..., 24:72].requires_grad_()
    else:
        (weight if "weight" in layout else x).requires_grad_(False)
    assert_equal_to_torch((x, weight, bias))


def test_gradients_of_gradients():
    given = arguments(48, 64)

    def penalty(function, tensors):
        loss = function(*tensors).pow(2).mean()
        first = torch.autograd.grad(loss, tensors, create_graph=True)
        return torch.autograd.grad(sum(gradient.pow(2).sum() for gradient in first), tensors)

    tripled = penalty(linear, given), penalty(F.linear, doubled(given))
    torch.testing.assert_close(*tripled, rtol=1e-3, atol=1e-6, check_dtype=False)


def test_transforms_of_functions():
    given = [tensor.detach() for tensor in arguments(48, 64)]
    found, expected = (
        torch.func.grad(lambda *tensors, f=f: f(*tensors).sin().sum(), argnums=(0, 1, 2))(*given)
        for f in (linear, F.linear)
    )
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-2)


def test_only_where_it_is_faster(monkeypatch):
    layer = Linear(48, 64)
    x = torch.randn(*ROWS, 48)
    assert is_by_onednn(layer(x))
    assert not is_by_onednn(layer(x[:, :8])), "few rows"
    assert not is_by_onednn(Linear(48, 64).double()(x.double()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    with torch.backends.mkldnn.flags(enabled=False):
        assert not is_by_onednn(layer(x))
    with torch.no_grad():
        assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))
    monkeypatch.setattr(module, "onednn_is_faster", lambda: False)
    assert not is_by_onednn(layer(x))
