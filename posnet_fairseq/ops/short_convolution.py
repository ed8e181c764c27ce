"""Depthwise convolution over the last few tokens, in front of a recurrence."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posnet_fairseq.ops.derivatives import once_differentiable

WIDTH = 4


class ShortConvolution(nn.Module):
    """silu(Σ_i w_i x_{n-3+i} + b): the causal convolution of Mamba (Gu and Dao, 2023) Section 3.4, over 4 tokens.

    Initial values are those of :class:`torch.nn.Conv1d`, as in the published code of Mamba and Gated DeltaNet.
    """

    def __init__(self, channels: int, bias: bool) -> None:
        super().__init__()
        bound = WIDTH**-0.5
        self.weight = nn.Parameter(torch.empty(channels, WIDTH).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound)) if bias else None

    def forward(self, x: Tensor, backward: bool = False) -> Tensor:
        """Return the result for every token, (B, N, C).

        Args:
            x: (B, N, C), zeros at padding.
            backward: whether token n meets the 3 tokens after it instead of those before it.
        """
        return self._activated(_Convolution.apply(x, self.weight, backward))

    def step(self, x: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Return the result for one token more, (B, 1, C), and the inputs that the next step needs.

        Args:
            x: (B, 1, C).
            last: the 3 inputs before it, (B, 3, C).
        """
        window = torch.cat([last, x], dim=1)
        return self._activated((window * self.weight.T).sum(dim=1, keepdim=True)), window[:, 1:]

    def _activated(self, x: Tensor) -> Tensor:
        return F.silu(x if self.bias is None else x + self.bias)


class _Convolution(torch.autograd.Function):
    """Σ_i w_i x_{n-3+i}, or x_{n+3-i}. Shifted sums in place take half the time of slices of a padded copy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, backward: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.reverse = backward
        return _shifted_sum(x, weight, backward)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_result: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        to_weight = torch.empty_like(weight)
        for distance in range(WIDTH):
            late, early = to_result[:, distance:], x[:, : x.size(1) - distance]
            if ctx.reverse:
                late, early = to_result[:, : x.size(1) - distance], x[:, distance:]
            to_weight[:, WIDTH - 1 - distance] = (late * early).sum(dim=(0, 1))
        return _shifted_sum(to_result, weight, not ctx.reverse), to_weight, None


def _shifted_sum(x: Tensor, weight: Tensor, reverse: bool) -> Tensor:
    """Return Σ_d w_{3-d} x_{n-d}, (B, N, C), or with x_{n+d} if `reverse`, of the distances d = 0 ... 3."""
    weights, length = weight.T, x.size(1)
    total = x * weights[WIDTH - 1]
    for distance in range(1, WIDTH):
        early, late = slice(0, max(0, length - distance)), slice(distance, None)
        into, read = (early, late) if reverse else (late, early)
        total[:, into].addcmul_(x[:, read], weights[WIDTH - 1 - distance])
    return total
