"""Mixing with weights that no token has a part in, one table for all sentences of a batch."""

from dataclasses import dataclass

import torch
from torch import Tensor

# Where real tokens have less of a query's weight than this (or 1e-10), each sentence is computed by itself: what is
# taken out of the weights of all tokens would have lost its digits.
SMALLEST_PART = {torch.float16: 2.0**-6}


@dataclass(frozen=True)
class SharedWeights:
    """Weights (H, N, M) that all sentences share."""

    weights: Tensor

    def part(self, padding_mask):
        """How much of each query's weight is on real tokens: (B, H, N) for a mask (B, M), True at padding."""
        return (self.weights @ (~padding_mask).T.to(self.weights.dtype)).permute(2, 0, 1)

    def mix(self, value):
        """Weighted sums of values (B, H, M, d), as :func:`mix_static`."""
        return mix_static(self.weights[None].to(value.dtype), value)


def is_exact(part: Tensor, dtype: torch.dtype, padded_queries: Tensor | None) -> bool:
    """Whether the weight on padding can be taken out of sums over all tokens without losing digits.

    Args:
        part: (B, H, N), how much of each query's weight is on real tokens.
        dtype: of the values.
        padded_queries: (B, N), True at queries whose result does not matter; None if all matter.
    """
    real = part if padded_queries is None else part.masked_fill(padded_queries[:, None], 1)
    return bool(real.min() >= SMALLEST_PART.get(dtype, 1e-10))


def mix_real(weights: "SharedWeights", value: Tensor, part: Tensor) -> Tensor:
    """Weighted means of the real tokens of each sentence, by weights of all tokens that sum to 1.

    The weight on padding is taken out of the sums and out of what they are divided by; :func:`is_exact` tells whether
    that is exact.

    Args:
        weights: :class:`SharedWeights` or the like.
        value: (B, H, M, d), zeros at padding.
        part: (B, H, N), how much of each query's weight is on real tokens.

    Returns:
        (B, H, N, d).
    """
    smallest = SMALLEST_PART.get(value.dtype, 1e-10)
    return (weights.mix(value) / part.masked_fill(part < smallest, 1)[..., None]).to(value.dtype)


def mix_static(weights, value):
    """Σ_m weights[n, m] · value[m].

    Args:
        weights: (B, H, N, M), or (1, H, N, M) for all sentences.
        value: (B, H, M, d).

    Returns:
        (B, H, N, d).
    """
    batch, heads, keys, width = value.shape
    queries = weights.size(2)
    if weights.size(0) == batch or queries == 1:
        return weights @ value
    # Shared weights: fold the batch into columns, so that one product per head serves every sentence.
    columns = value.permute(1, 2, 0, 3).reshape(heads, keys, batch * width)
    mixed = weights.squeeze(0) @ columns
    return mixed.view(heads, queries, batch, width).permute(2, 0, 1, 3)
