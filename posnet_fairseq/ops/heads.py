"""Conversion between the width of the model and its heads."""

from torch import Tensor


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Return ``x``, (B, N, D), as (B, H, N, d)."""
    batch, length, width = x.shape
    return x.view(batch, length, num_heads, width // num_heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Return ``x``, (B, H, N, d), as (B, N, D)."""
    return x.transpose(1, 2).flatten(2)


def split_table(table: Tensor, head_dim: int) -> Tensor:
    """Return ``table``, (T, H·d), as (H, T, d): each head has columns of its own. H is 1 if heads share them."""
    return table.view(table.size(0), -1, head_dim).transpose(0, 1)
