"""Pairs of tokens whose offsets share a matrix, as views of tokens and of what pairs have."""

import itertools
from dataclasses import dataclass
from typing import Any

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
        lines: one for tokens in a line, of rows and of columns for cells of a grid.
        shape: R, C and E of the grid for cells, else empty.
    """

    row: int
    lines: tuple[Line, ...]
    shape: tuple[int, ...] = ()

    @property
    def is_diagonal(self) -> bool:
        """Whether every query has one key: energies are then sums of products of tokens, without a matrix product."""
        return not any(line.side for line in self.lines)

    def queries(self, tokens: Tensor) -> Tensor:
        """Return the queries of ``tokens``, (N, B, C), as a view (n, B, C), of cells (r, c, B, C)."""
        return self._of(tokens, tuple(line.queries for line in self.lines))

    def keys(self, tokens: Tensor) -> Tensor:
        """Return the keys as :meth:`queries` does."""
        return self._of(tokens, tuple(line.keys for line in self.lines))

    def _of(self, tokens: Tensor, slices: tuple[slice, ...]) -> Tensor:
        if self.shape:
            rows, columns, extra = self.shape
            tokens = tokens[extra:].unflatten(0, (rows, columns))
        return tokens[slices]

    def pairs(self, pairs: Tensor) -> Tensor:
        """Return a view of ``pairs``, (B, H, N, N): one dimension for each diagonal, then queries, then keys.

        That is (n, B, H) or (r, c, B, H) if all are diagonals, else (B, H, n, m), (B, H, diagonal, n, m), or
        (B, H, r, c, r', c').
        """
        slices: list[Any] = [*(line.queries for line in self.lines), *(line.keys for line in self.lines)]
        if self.shape:
            rows, columns, extra = self.shape
            pairs = pairs[:, :, extra:, extra:].unflatten(3, (rows, columns)).unflatten(2, (rows, columns))
        pairs = pairs[(slice(None), slice(None), *slices)]
        if self.is_diagonal:
            pairs = pairs.diagonal(0, 2, 4).diagonal(0, 2, 3) if self.shape else pairs.diagonal(0, 2, 3)
            return pairs.movedim((0, 1), (-2, -1))
        if not self.shape or 0 not in (line.side for line in self.lines):
            return pairs
        of_rows = not self.lines[0].side
        return (pairs.diagonal(0, 2, 4) if of_rows else pairs.diagonal(0, 3, 5)).movedim(-1, 2)

    def per_head(self, x: Tensor, num_heads: int) -> Tensor:
        """Return ``x``, as of :meth:`queries`, for products of all pairs: (B, H, n, c), (B, H, diagonal, n, c)."""
        x = x.unflatten(-1, (num_heads, -1)).movedim((-3, -2), (0, 1))
        if not self.shape:
            return x
        if self.lines[1].side:
            return x if not self.lines[0].side else x.flatten(2, 3)
        return x.transpose(2, 3)

    def merged(self, x: Tensor, like: Tensor) -> Tensor:
        """Return what :meth:`per_head` made of a tensor of the shape of ``like`` in that shape again."""
        if self.shape and not self.lines[1].side:
            x = x.transpose(2, 3)
        elif self.shape and self.lines[0].side:
            x = x.unflatten(2, like.shape[:2])
        return x.movedim((0, 1), (-3, -2)).flatten(-2)

    def only_its_pairs(self, block: Tensor) -> Tensor:
        """Set other pairs of ``block``, of the shape of :meth:`pairs`, to zero in place, and return it."""
        sides = [line.side for line in self.lines if line.side]
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
    if not shape:
        (reach,) = reaches
        return [Group(line.row, (line,)) for line in _lines(length, reach, causal)]
    rows, columns, extra = shape
    of_rows, of_columns = (_lines(size, reach, False, 2) for size, reach in zip((rows, columns), reaches, strict=True))
    width = 2 * reaches[1] + 1
    found = [Group(row.row * width + column.row, (row, column), shape) for row in of_rows for column in of_columns]
    if extra:
        before, cells = slice(0, extra), slice(extra, length)
        count = (2 * reaches[0] + 1) * width
        kinds = itertools.islice(itertools.product((before, cells), (before, cells)), 3)
        found += [Group(count + i, (Line(0, queries, keys, ALL),)) for i, (queries, keys) in enumerate(kinds)]
    return found


def _lines(length: int, reach: int, causal: bool, fewest: int = 1) -> list[Line]:
    """Return the lines of all offsets. Fewer than `fewest` pairs of tokens at the reach are a diagonal, not a block."""
    found = []
    for side in (BELOW,) if causal else (BELOW, ABOVE):
        for distance in range(side == ABOVE, min(length, reach + 1)):
            behind, before = slice(distance, length), slice(0, length - distance)
            queries, keys = (behind, before) if side == BELOW else (before, behind)
            row = distance if causal else reach + side * distance
            shared = distance == reach and length - distance >= fewest
            found.append(Line(row, queries, keys, side if shared else 0))
    return found
