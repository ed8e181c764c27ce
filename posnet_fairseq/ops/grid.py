"""Tokens on a grid: rows of cells, in front of them tokens without a place.

A mixer reads offsets. In a sentence they are one tensor, n - m of every pair of tokens. On a grid they are two small
ones, of rows and of columns, in shapes that broadcast to pairs of cells, so that what depends on one direction is
computed once for that direction; :meth:`Grid.pairs` makes of it what every pair of tokens has.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

# Δr, (R, 1, R, 1), and Δc, (1, C, 1, C), of the cell of a query minus that of a key.
GridOffsets = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Grid:
    """R rows of C cells, row by row, behind E tokens that have no place, such as a class token."""

    rows: int
    columns: int
    extra_tokens: int = 0

    @property
    def tokens(self) -> int:
        """N = E + R·C."""
        return self.extra_tokens + self.rows * self.columns

    def __str__(self) -> str:
        """Return what the tokens are, for errors."""
        number = self.extra_tokens
        extra = f"{number} extra token{'s' * (number > 1)} and " if number else ""
        return f"{extra}{self.rows} × {self.columns} cells"

    def offsets(self, device: torch.device | None = None) -> GridOffsets:
        """Return the offsets of all pairs of cells, in both directions."""
        row, column = (torch.arange(size, device=device) for size in (self.rows, self.columns))
        return (row[:, None] - row)[:, None, :, None], (column[:, None] - column)[None, :, None, :]

    def places(self, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
        """Return the row and the column of every token, (N,) each; 0 for extra tokens."""
        cell = torch.arange(self.rows * self.columns, device=device)
        row, column = (F.pad(x, (self.extra_tokens, 0)) for x in (cell // self.columns, cell % self.columns))
        return row, column

    def pairs(self, of_cells: Tensor, of_extra: float) -> Tensor:
        """Return what pairs of tokens have, (..., N, N): of pairs of cells, (..., R, C, R, C); others `of_extra`."""
        cells, extra = self.rows * self.columns, self.extra_tokens
        of_cells = of_cells.expand(*of_cells.shape[:-4], self.rows, self.columns, self.rows, self.columns)
        return F.pad(of_cells.reshape(*of_cells.shape[:-4], cells, cells), (extra, 0, extra, 0), value=of_extra)
