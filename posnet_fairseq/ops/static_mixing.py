"""Mixing with static weights, (H, N, M), which no token decides: one table for all sentences of a batch."""

import torch
from torch import Tensor

# Where real tokens have a smaller share of a query's weight than this (or 1e-10), each sentence is computed by itself:
# dividing by so small a share would lose digits.
SMALLEST_SHARE = {torch.float16: 2.0**-6}


def mix_all(weights: Tensor, value: Tensor) -> Tensor:
    """Return weighted sums (B, H, N, d) of values (B, H, M, d)."""
    batch, heads, keys, width = value.shape
    weights, queries = weights.to(value.dtype), weights.size(1)
    if batch == 1 or queries == 1:
        return weights @ value
    # The batch is folded into columns, so that one product per head serves every sentence.
    columns = value.permute(1, 2, 0, 3).reshape(heads, keys, batch * width)
    return (weights @ columns).view(heads, queries, batch, width).permute(2, 0, 1, 3)


def real_share(weights: Tensor, padding_mask: Tensor) -> Tensor:
    """Return the share of each query's weight on real tokens: (B, H, N) for a mask (B, M), True at padding."""
    return (weights @ (~padding_mask).T.to(weights.dtype)).permute(2, 0, 1)


def is_exact(share: Tensor, dtype: torch.dtype, padded_queries: Tensor | None) -> bool:
    """Return whether the weight on padding can be taken out of sums over all tokens without losing digits.

    `share` is that of :func:`real_share`; `padded_queries`, (B, N), do not matter.
    """
    real = share if padded_queries is None else share.masked_fill(padded_queries[:, None], 1)
    return bool(real.min() >= SMALLEST_SHARE.get(dtype, 1e-10))


def mix_real(weights: Tensor, value: Tensor, share: Tensor) -> Tensor:
    """Return weighted means of the real tokens of each sentence, (B, H, N, d), by weights of all tokens.

    The weight on padding is taken out of the sums and out of what they are divided by; :func:`is_exact` tells whether
    that is exact. Weights sum to 1; values are zeros at padding; `share` is that of :func:`real_share`.
    """
    smallest = SMALLEST_SHARE.get(value.dtype, 1e-10)
    return (mix_all(weights, value) / share.masked_fill(share < smallest, 1)[..., None]).to(value.dtype)
