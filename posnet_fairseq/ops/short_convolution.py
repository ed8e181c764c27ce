"""Depthwise convolution over the last few tokens, in front of a recurrence."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
        padded = F.pad(x, (0, 0, 0, WIDTH - 1) if backward else (0, 0, WIDTH - 1, 0))
        windows = [padded[:, i : i + x.size(1)] for i in range(WIDTH)]
        return self._sum(windows[::-1] if backward else windows)

    def step(self, x: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Return the result for one token more, (B, 1, C), and the inputs that the next step needs.

        Args:
            x: (B, 1, C).
            last: the 3 inputs before it, (B, 3, C).
        """
        window = torch.cat([last, x], dim=1)
        return self._sum(list(window.split(1, dim=1))), window[:, 1:]

    def _sum(self, windows: list[Tensor]) -> Tensor:
        """Return silu of the weighted sum of what each of the four weights is multiplied with."""
        weights = self.weight.T
        total = windows[0] * weights[0]
        for window, weight in zip(windows[1:], weights[1:], strict=True):
            total = torch.addcmul(total, window, weight)
        return F.silu(total if self.bias is None else total + self.bias)
