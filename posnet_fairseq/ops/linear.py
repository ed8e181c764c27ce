"""Linear layers whose matrix products run on the library that is fastest for them.

torch multiplies float32 matrices with MKL, which uses no AVX-512 on AMD processors. oneDNN, which is part of torch too,
does. In training it reads transposed matrices in place, so that all three products of a layer gain.
"""

import functools
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The fewest multiplications of a product for which oneDNN is faster than MKL on AMD processors with AVX-512: 64 tokens
# of width 192 are 1.23 times as fast, and 32 tokens 0.74 times.
FEWEST_MULTIPLICATIONS = 2**21
SLOW_BF16 = "this processor does not multiply in bf16, and training takes many times as long as in float32"


class Linear(nn.Linear):
    """As :class:`torch.nn.Linear`, computed by :func:`linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x · weightᵀ + bias, as :func:`torch.nn.functional.linear` does; in training by oneDNN where it is faster.

    Args:
        x: (..., I).
        weight: (O, I).
        bias: (O,), or None.
    """
    trains = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    if trains and _gains(x, weight):
        return _OneDnnLinear.apply(x, weight, bias)
    return F.linear(x, weight, bias)


def multiply(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Return a · bᵀ, (N, K) and (M, K), which may be transposed views, by oneDNN where it is faster; no gradients.

    ``out`` is memory that the product may be written to.
    """
    return _product(a, b) if _gains(a, b) else torch.mm(a, b.T, out=out)


def _gains(x: Tensor, weight: Tensor) -> bool:
    """Return whether oneDNN is faster: at large float32 products, on some processors."""
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.numel() * weight.size(0) >= FEWEST_MULTIPLICATIONS
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        and bool(torch.backends.mkldnn.enabled)
        and onednn_is_faster()
    )


@functools.cache
def onednn_is_faster() -> bool:
    """Return whether this is an AMD processor with AVX-512, which MKL does not use there.

    The processor is looked up rather than timed, so that a training has the same rounding whenever it runs.
    """
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    processor = Path("/proc/cpuinfo")  # of Linux, the system that posnet is for
    is_amd = processor.exists() and "AuthenticAMD" in processor.read_text()
    return is_amd and torch.backends.cpu.get_cpu_capability() == "AVX512"


def multiplies_bf16() -> bool:
    """Return whether this CPU multiplies in bf16; on others, torch emulates it."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a · bᵀ + bias for matrices a and b, each of which may be a transposed view."""
    return torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")


class _OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = x.reshape(-1, x.size(-1)).contiguous()
        return _product(rows, weight, bias).view(*x.shape[:-1], weight.size(0))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        product = (lambda a, b: a @ b.T) if torch.is_grad_enabled() else _product  # the one has second derivatives
        gradient = upstream.reshape(-1, weight.size(0)).contiguous()
        of_x, of_weight, of_bias = None, None, None
        if ctx.needs_input_grad[0]:
            of_x = product(gradient, weight.T).view_as(x)
        if ctx.needs_input_grad[1]:
            rows = x.reshape(-1, x.size(-1)).contiguous()
            # oneDNN is faster at wide results than at high ones.
            wide = weight.size(1) >= weight.size(0)
            of_weight = product(gradient.T, rows.T) if wide else product(rows.T, gradient.T).T
        if ctx.needs_input_grad[2]:
            of_bias = gradient.sum(dim=0)
        return of_x, of_weight, of_bias
