"""Mixing with static weights: one table for all sentences of a batch."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

# Where real tokens have a smaller share of a query's weight than this (or 1e-10), each sentence is computed by itself:
# dividing by so small a share would lose digits.
SMALLEST_SHARE = {torch.float16: 2.0**-6}


class StaticWeights(Protocol):
    """Weights shared by all sentences, as :class:`SharedWeights` or :class:`posnet_fairseq.ops.band.BandWeights`."""

    def real_share(self, padding_mask: Tensor) -> Tensor:
        """Return the share of each query's weight on real tokens: (B, H, N) for a mask (B, M), True at padding."""
        ...

    def mix(self, value: Tensor) -> Tensor:
        """Return weighted sums (B, H, N, d) of values (B, H, M, d)."""
        ...


@dataclass(frozen=True)
class SharedWeights:
    """Weights (H, N, M) shared by all sentences."""

    weights: Tensor

    def real_share(self, padding_mask: Tensor) -> Tensor:
        """Return the share of each query's weight on real tokens: (B, H, N) for a mask (B, M), True at padding."""
        return (self.weights @ (~padding_mask).T.to(self.weights.dtype)).permute(2, 0, 1)

    def mix(self, value: Tensor) -> Tensor:
        """Return weighted sums (B, H, N, d) of values (B, H, M, d), see :func:`mix_static`."""
        return mix_static(self.weights[None].to(value.dtype), value)


def mix_real(
    weights: StaticWeights, value: Tensor, padding_mask: Tensor, padded_queries: Tensor | None
) -> Tensor | None:
    """Return weighted means of the real tokens of each sentence, from weights of all tokens that sum to 1.

    Padding is left out of the sums, and these are divided by the share of the weight that is on real tokens.

    Args:
        weights: of all tokens.
        value: (B, H, M, d).
        padding_mask: (B, M), True at padding.
        padded_queries: (B, N), True at queries whose result is not used; None if all are used.

    Returns:
        (B, H, N, d); None if the share of real tokens is too small for an exact result.
    """
    share = weights.real_share(padding_mask)
    used = share if padded_queries is None else share.masked_fill(padded_queries[:, None], 1)
    smallest = SMALLEST_SHARE.get(value.dtype, 1e-10)
    if used.min() < smallest:
        return None
    mixed = weights.mix(value.masked_fill(padding_mask[:, None, :, None], 0))
    return (mixed / share.masked_fill(share < smallest, 1)[..., None]).to(value.dtype)


def mix_static(weights: Tensor, value: Tensor) -> Tensor:
    """Return Σ_m weights[n, m] · value[m].

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
