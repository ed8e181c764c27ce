"""Dropout whose random numbers cost less on CPUs.

torch draws a number of 64 bits for each element there. 16 bits decide as well: a probability is met to 2⁻¹⁷, and what
stays is divided by the share that is met, so that expectations are exact.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def dropout(x: Tensor, p: float) -> Tensor:
    """Return ``x``, of any shape, with elements set to 0 with probability p and the others divided by 1 - p."""
    if not p:
        return x
    return x * _factors(x, p) if is_by_16_bits(x, p) else F.dropout(x, p)


def is_by_16_bits(x: Tensor, p: float) -> bool:
    """Return whether 16 bits decide: on CPUs, unless the probability is too near to 0 or 1 for them."""
    # On a GPU, and compiled, the kernel that multiplies draws the numbers itself.
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and 0 < round(p * 2**16) < 2**16


def _factors(x: Tensor, p: float) -> Tensor:
    """Return what each element of ``x`` is multiplied by, of its shape and dtype."""
    zeros = round(p * 2**16)  # of the 2¹⁶ numbers
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
    numbers = words.view(torch.int16)[: x.numel()].view(x.shape)
    stays = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return torch.ge(numbers, zeros - 2**15, out=stays).mul_(2**16 / (2**16 - zeros))


class Dropout(nn.Module):
    """Dropout in training; with fairseq's ``--retain-dropout`` also in generation.

    `module_name` is what ``--retain-dropout-modules`` calls it.
    """

    def __init__(self, p: float, module_name: str) -> None:
        super().__init__()
        self.p = p
        self.module_name = module_name
        self.retained = False

    @property
    def probability(self) -> float:
        """The probability of a zero in the current mode."""
        return self.p if self.training or self.retained else 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of a tensor of any shape."""
        return dropout(x, self.probability)

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """Return `residual` plus :meth:`forward` of `x`, both of any shape, in one pass over them."""
        p = self.probability
        if is_by_16_bits(x, p) and residual.dtype == x.dtype:
            return torch.addcmul(residual, x, _factors(x, p))
        return residual + dropout(x, p)

    def make_generation_fast_(
        self,
        retain_dropout: bool = False,
        retain_dropout_modules: list[str] | None = None,
        **kwargs: object,
    ) -> None:
        """Keep dropout on in evaluation mode if `retain_dropout` says so; fairseq calls this before generation."""
        named = retain_dropout_modules is None or self.module_name in retain_dropout_modules
        self.retained = retain_dropout and named
