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


def mix_real(weights, value, padding_mask, padded_queries):
    """Weighted means of the real tokens of each sentence, by weights of all tokens that sum to 1.

    The weight on padding is taken out of the sums and out of what they are divided by.

    Args:
        weights: :class:`SharedWeights` or the like.
        value: (B, H, M, d).
        padding_mask: (B, M), True at padding.
        padded_queries: (B, N), True at queries that do not matter; None if all do.

    Returns:
        (B, H, N, d); None if it would not be exact.
    """
    part = weights.part(padding_mask)
    real = part if padded_queries is None else part.masked_fill(padded_queries[:, None], 1)
    smallest = SMALLEST_PART.get(value.dtype, 1e-10)
    if real.min() < smallest:
        return None
    mixed = weights.mix(value.masked_fill(padding_mask[:, None, :, None], 0))
    return (mixed / part.masked_fill(part < smallest, 1)[..., None]).to(value.dtype)


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
