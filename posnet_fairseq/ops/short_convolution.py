"""Depthwise convolution over the last few tokens, in front of a recurrence."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posnet_fairseq.ops.derivatives import once_differentiable
from posnet_fairseq.ops.dtypes import without_autocast

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
        x = x.to(torch.promote_types(x.dtype, self.weight.dtype))  # 16 bits under autocast
        with without_autocast(x):
            y = _Convolution.apply(x, self.weight, backward)
        return self._activated(y)

    def step(self, x: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Return the result for one token more, (B, 1, C), and the inputs that the next step needs.

        Args:
            x: (B, 1, C).
            last: the 3 inputs before it, (B, 3, C).
        """
        window = torch.cat([last, x], dim=1)
        weight = self.weight.T.contiguous()  # products with gaps between the weights take several times as long
        return self._activated((window * weight).sum(dim=1, keepdim=True)), window[:, 1:]

    def _activated(self, x: Tensor) -> Tensor:
        return F.silu(x if self.bias is None else x + self.bias)


class _Convolution(torch.autograd.Function):
    """Σ_i w_i x_{n-3+i}, or x_{n+3-i}. In long sentences torch's gradient of the weights takes three times as long."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, backward: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.reverse = backward
        return _convolution(x, weight, backward)

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
        return _convolution(to_result, weight, not ctx.reverse), to_weight, None


def _convolution(x: Tensor, weight: Tensor, reverse: bool) -> Tensor:
    """Return Σ_d w_{3-d} x_{n-d}, (B, N, C), or with x_{n+d} if `reverse`, of the distances d = 0 ... 3.

    It is the convolution of images of one row, since torch has the fastest kernels for those with channels last.
    """
    images = x.mT[:, :, None]  # (B, C, 1, N)
    kernel = (weight.flip(1) if reverse else weight)[:, None, None]
    y = F.conv2d(images, kernel, padding=(0, WIDTH - 1), groups=weight.size(0))[:, :, 0].mT
    return y[:, WIDTH - 1 :] if reverse else y[:, : x.size(1)]
