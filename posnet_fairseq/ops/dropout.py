"""Dropout whose random numbers cost less on CPUs.

torch draws a number of 64 bits for each element there. 16 bits decide as well: a probability is met to 2⁻¹⁷, and what
stays is divided by the share that is met, so that expectations are exact.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def dropout(x: Tensor, p: float) -> Tensor:
    """Return ``x`` with elements set to 0 at random and the others divided by 1 - p.

    Args:
        x: any shape.
        p: probability of a zero; 0 returns ``x`` itself.
    """
    if not p:
        return x
    return x * _factors(x, p) if _is_by_16_bits(x, p) else F.dropout(x, p)


def add_dropout(residual: Tensor, x: Tensor, p: float) -> Tensor:
    """Return ``residual`` + :func:`dropout` of ``x``, in one pass over them.

    Args:
        residual: of the shape of ``x``.
        x: any shape.
        p: probability of a zero.
    """
    if p and _is_by_16_bits(x, p) and residual.dtype == x.dtype:
        return torch.addcmul(residual, x, _factors(x, p))
    return residual + dropout(x, p)


def _is_by_16_bits(x: Tensor, p: float) -> bool:
    """Whether 16 bits decide: on CPUs, unless the probability is too near to 0 or 1 for them."""
    # On a GPU, and compiled, the kernel that multiplies draws the numbers itself.
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and 0 < _zeros(p) < 2**16


def _zeros(p: float) -> int:
    """How many of the 2¹⁶ numbers stand for a zero."""
    return round(p * 2**16)


def _factors(x: Tensor, p: float) -> Tensor:
    """Return what each element of ``x`` is multiplied by, of its shape and dtype."""
    zeros = _zeros(p)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    numbers = words.view(torch.int16)[: x.numel()].view(x.shape)
    stays = torch.empty(x.shape, dtype=x.dtype)
    return torch.ge(numbers, zeros - 2**15, out=stays).mul_(2**16 / (2**16 - zeros))
