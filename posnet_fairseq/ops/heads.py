"""Conversion between the width of the model and its heads."""

from torch import Tensor


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Return ``x``, (B, N, D), as (B, H, N, d)."""
    batch, length, width = x.shape
    return x.view(batch, length, num_heads, width // num_heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Return ``x``, (B, H, N, d), as (B, N, D)."""
    return x.transpose(1, 2).flatten(2)


def split_table(table: Tensor, num_heads: int) -> Tensor:
    """Return ``table``, (T, D), as (H, T, d): each head has columns of its own."""
    rows, width = table.shape
    return table.view(rows, num_heads, width // num_heads).transpose(0, 1)
