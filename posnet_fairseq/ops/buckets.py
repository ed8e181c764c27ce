"""Which row of a table the pairs of tokens use: a bucket holds the offsets that share a row."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from posnet_fairseq.ops.grid import Grid, GridOffsets
from posnet_fairseq.ops.offsets import clip_index, piecewise_index

Index = Literal["clip", "piecewise", "window"]
Method = Literal["product", "cross", "euclidean", "quantization"]


@dataclass(frozen=True)
class Buckets:
    """The rows of a table of offsets: in a sentence 2K + 1, from -K to K; on a grid by a method of iRPE, Eqs. 19 to 25.

    Product has a bucket for every pair of buckets of the two directions, clipped at K or at the greatest offset of the
    grid. So has cross, whose rows are sums of a row of each direction. The undirected methods have 2K + 1, of which the
    first K stay unused. The last bucket, on a grid with extra tokens, is that of all pairs with one of them.

    Attributes:
        kind: ``clip``: offsets beyond ±K share the row of ±K. ``piecewise``: Eq. 18 with β = K, which is no whole
            number on a grid by default. ``window``: pairs beyond K in any direction have a row of zeros.
        distance: K.
        grid: None in a sentence.
        method: on a grid.
    """

    kind: Index
    distance: float
    grid: Grid | None = None
    method: Method = "product"

    @property
    def reaches(self) -> tuple[int, ...]:
        """The greatest index in each direction that has buckets of its own."""
        reach = int(self.distance)
        if self.grid is None or self.method in ("euclidean", "quantization"):
            return (reach,)
        sizes = self.grid.rows, self.grid.columns
        return tuple(reach if self.kind == "piecewise" else min(reach, size - 1) for size in sizes)

    @property
    def count(self) -> int:
        """The number of buckets, T."""
        return math.prod([2 * reach + 1 for reach in self.reaches]) + self._extra

    @property
    def rows(self) -> int:
        """The number of rows that are trained: of cross, those of the two directions."""
        return sum(self._rows_of_each) if self.method == "cross" else self.count

    @property
    def _extra(self) -> int:
        return int(self.grid is not None and self.grid.extra_tokens > 0)

    @property
    def _rows_of_each(self) -> list[int]:
        return [2 * reach + 1 + self._extra for reach in self.reaches]

    def split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return those of the rows of cross, (rows, ...), that are of each direction."""
        return rows.split(self._rows_of_each)

    def table(self, rows: Tensor) -> Tensor:
        """Return the table that :meth:`index` counts in, (T, ...), of the rows that are trained."""
        if self.method == "cross":
            row, column = self.split(rows)
            of_cells = [x[: 2 * reach + 1] for x, reach in zip((row, column), self.reaches, strict=True)]
            of_extra = [row[-1:] + column[-1:]] if self._extra else []
            rows = torch.cat([(of_cells[0][:, None] + of_cells[1]).flatten(0, 1), *of_extra])
        return torch.cat([rows, torch.zeros_like(rows[:1])]) if self.kind == "window" else rows

    def index(self, offsets: Tensor | GridOffsets) -> Tensor:
        """Return the row of every pair, (N, M)."""
        if self.grid is None:
            assert isinstance(offsets, Tensor)
            return self._of_line(offsets, *self.reaches)
        measures, found = self._measures(*offsets), offsets[0].new_zeros(())
        for measure, reach in zip(measures, self.reaches, strict=True):
            found = found * (2 * reach + 1) + self._of_line(measure, reach)
        if self.kind == "window":
            for measure in measures:
                found = torch.where(measure.abs() > self.distance, self.count, found)
        return self.grid.pairs(found, self.count - 1)

    def _measures(self, row: Tensor, column: Tensor) -> tuple[Tensor, ...]:
        """Return what buckets are of: offsets, or a whole number that grows with the distance."""
        square = row**2 + column**2
        if self.method == "euclidean":
            return (square.double().sqrt().round().long(),)
        return (square,) if self.method == "quantization" else (row, column)

    def _of_line(self, offsets: Tensor, reach: int) -> Tensor:
        return piecewise_index(offsets, self.distance) if self.kind == "piecewise" else clip_index(offsets, reach)
