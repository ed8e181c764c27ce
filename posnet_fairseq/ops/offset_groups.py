"""Groups of token pairs whose offsets share a matrix, and the views of tensors that their products need."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Group:
    """Pairs of tokens whose offsets share a matrix.

    Attributes:
        row: of the matrix in its table.
        queries, keys: slices of the N tokens.
        side: 0 for one diagonal, token i of ``queries`` with token i of ``keys``; 1 for all pairs on and below that
            diagonal, where keys are to the left of the query; -1 for those on and above it.
    """

    row: int
    queries: slice
    keys: slice
    side: int = 0


def groups(length: int, clip_distance: int, causal: bool) -> list[Group]:
    """Return groups that together hold every pair that is not hidden, once.

    Args:
        length: N.
        clip_distance: K.
        causal: whether only offsets δ ≥ 0 are mixed. Offset δ then has row δ of a table, otherwise row K + δ.
    """
    sides = (1,) if causal else (1, -1)
    found = []
    for side in sides:
        for distance in range(side < 0, min(length, clip_distance + 1)):
            behind, before = slice(distance, length), slice(0, length - distance)
            queries, keys = (behind, before) if side > 0 else (before, behind)
            row = distance if causal else clip_distance + side * distance
            found.append(Group(row, queries, keys, side if distance == clip_distance else 0))
    return found


def project(tokens: Tensor, table: Tensor | None, row: int) -> Tensor:
    """Return tokens (n, B, C) times one matrix of a table; unchanged without a table."""
    return tokens if table is None else tokens @ table[row]


def split_features(x: Tensor, num_heads: int) -> Tensor:
    """Return ``x``, (n, B, C), as (n, B, H, c)."""
    return x.unflatten(2, (num_heads, -1))


def per_head(x: Tensor, num_heads: int) -> Tensor:
    """Return ``x``, (n, B, C), as (B, H, n, c)."""
    return split_features(x, num_heads).permute(1, 2, 0, 3)


def merge_features(x: Tensor) -> Tensor:
    """Return ``x``, (B, H, n, c), as (n, B, C)."""
    return x.permute(2, 0, 1, 3).flatten(2)


def diagonal(pairs: Tensor, group: Group) -> Tensor:
    """Return the pairs of one offset, (n, B, H), a view of ``pairs``, (B, H, N, N)."""
    return pairs[:, :, group.queries, group.keys].diagonal(dim1=2, dim2=3).permute(2, 0, 1)


def triangle(block: Tensor, side: int) -> Tensor:
    """Set the pairs of ``block``, (B, H, n, n), on the other side to zero in place, and return it."""
    return block.tril_() if side > 0 else block.triu_()
