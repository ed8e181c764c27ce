"""Pairs of tokens whose offsets share a matrix, as views of tokens and of what pairs have."""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

# Of a Line: pairs on and below the diagonal, those on and above it, and all of them.
BELOW, ABOVE, ALL = 1, -1, 2


@dataclass(frozen=True)
class Line:
    """Which pairs of a group there are in one direction.

    Attributes:
        row: of the direction's offset, from 0 on.
        queries, keys: slices of the tokens of this direction.
        side: 0 for one diagonal, token i of `queries` with token i of `keys`; :data:`BELOW` for all pairs on and below
            that diagonal, where keys are to the left of the query; :data:`ABOVE` for those on and above it;
            :data:`ALL` for all pairs.
    """

    row: int
    queries: slice
    keys: slice
    side: int = 0


@dataclass(frozen=True)
class Group:
    """Pairs of tokens that share a matrix.

    Attributes:
        row: of the matrix in its table.
        rows, columns: which pairs there are in each direction.
        shape: R, C and E of the grid. Tokens in a line are a grid of one row.
    """

    row: int
    rows: Line
    columns: Line
    shape: tuple[int, int, int]

    @property
    def is_diagonal(self) -> bool:
        """Whether every query has one key: energies are then sums of products of tokens, without a matrix product."""
        return not (self.rows.side or self.columns.side)

    def queries(self, tokens: Tensor) -> Tensor:
        """Return the queries of ``tokens``, (N, B, C), as a view (r, c, B, C)."""
        return self._cells(tokens)[self.rows.queries, self.columns.queries]

    def keys(self, tokens: Tensor) -> Tensor:
        """Return the keys as :meth:`queries` does."""
        return self._cells(tokens)[self.rows.keys, self.columns.keys]

    def _cells(self, tokens: Tensor) -> Tensor:
        rows, columns, extra = self.shape
        return tokens[extra:].unflatten(0, (rows, columns))

    def pairs(self, pairs: Tensor) -> Tensor:
        """Return a view of ``pairs``, (B, H, N, N): one dimension for each diagonal, then queries, then keys.

        That is (r, c, B, H) if both are diagonals, (B, H, diagonal, n, m) if one is, else (B, H, r, c, r', c').
        """
        rows, columns, extra = self.shape
        pairs = pairs[:, :, extra:, extra:].unflatten(3, (rows, columns)).unflatten(2, (rows, columns))
        pairs = pairs[:, :, self.rows.queries, self.columns.queries, self.rows.keys, self.columns.keys]
        if self.is_diagonal:
            return pairs.diagonal(0, 2, 4).diagonal(0, 2, 3).movedim((0, 1), (-2, -1))
        if self.rows.side and self.columns.side:
            return pairs
        return (pairs.diagonal(0, 3, 5) if self.rows.side else pairs.diagonal(0, 2, 4)).movedim(-1, 2)

    def per_head(self, x: Tensor, num_heads: int) -> Tensor:
        """Return ``x``, as of :meth:`queries`, for products of all pairs: (B, H, n, c), (B, H, diagonal, n, c)."""
        x = x.unflatten(-1, (num_heads, -1)).movedim((-3, -2), (0, 1))
        if not self.columns.side:
            return x.transpose(2, 3)
        return x.flatten(2, 3) if self.rows.side else x

    def merged(self, x: Tensor, like: Tensor) -> Tensor:
        """Return what :meth:`per_head` made of a tensor of the shape of ``like`` in that shape again."""
        if not self.columns.side:
            x = x.transpose(2, 3)
        elif self.rows.side:
            x = x.unflatten(2, like.shape[:2])
        return x.movedim((0, 1), (-3, -2)).flatten(-2)

    def only_its_pairs(self, block: Tensor) -> Tensor:
        """Set other pairs of ``block``, of the shape of :meth:`pairs`, to zero in place, and return it."""
        sides = [line.side for line in (self.rows, self.columns) if line.side]
        if len(sides) == 1:
            return block.tril_() if sides == [BELOW] else block.triu_() if sides == [ABOVE] else block
        rows, columns = (
            torch.ones(block.shape[2 + i], block.shape[4 + i], dtype=torch.bool, device=block.device) for i in (0, 1)
        )
        rows, columns = (
            x.tril() if side == BELOW else x.triu() for x, side in zip((rows, columns), sides, strict=True)
        )
        return block.masked_fill_(~(rows[:, None, :, None] & columns[None, :, None, :]), 0)


def groups(length: int, reaches: tuple[int, ...], causal: bool, shape: tuple[int, ...] = ()) -> list[Group]:
    """Return groups that together hold every pair of N tokens that is not hidden, once.

    Args:
        length: N.
        reaches: K, on a grid of rows and of columns: offsets beyond it share the matrix of it.
        causal: whether only offsets δ ≥ 0 are mixed. Offset δ then has row δ of a table, otherwise row K + δ.
        shape: R, C and E of the grid. Row and column of an offset are then counted as one number, rows first, and three
            further rows are of pairs of extra tokens, of an extra query with a cell, and of a cell with an extra key.
    """
    rows, columns, extra = shape or (1, length, 0)
    reach_of_rows, reach = (0, *reaches)[-2:]
    width = 2 * reach + 1
    found = [
        Group(row.row * width + column.row, row, column, (rows, columns, extra))
        for row in _lines(rows, reach_of_rows, causal)
        for column in _lines(columns, reach, causal)
    ]
    if extra:
        before, cells, count = slice(0, extra), slice(extra, length), (2 * reach_of_rows + 1) * width
        kinds = itertools.islice(itertools.product((before, cells), repeat=2), 3)
        only = Line(0, slice(0, 1), slice(0, 1))
        found += [
            Group(count + i, only, Line(0, queries, keys, ALL), (1, length, 0))
            for i, (queries, keys) in enumerate(kinds)
        ]
    return found


def _lines(length: int, reach: int, causal: bool) -> list[Line]:
    """Return the lines of all offsets. Fewer than two pairs of tokens at the reach are a diagonal, not a block."""
    found = []
    for side in (BELOW,) if causal else (BELOW, ABOVE):
        for distance in range(side == ABOVE, min(length, reach + 1)):
            behind, before = slice(distance, length), slice(0, length - distance)
            queries, keys = (behind, before) if side == BELOW else (before, behind)
            row = distance if causal else reach + side * distance
            found.append(Line(row, queries, keys, side if distance == reach and length - distance > 1 else 0))
    return found
