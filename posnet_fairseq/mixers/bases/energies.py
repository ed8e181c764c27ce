"""Energies of positions, and the tables that replace them before inference."""

from typing import Any

import torch
from torch import Tensor, nn

from posnet_fairseq.ops.buckets import Buckets
from posnet_fairseq.ops.grid import Grid
from posnet_fairseq.ops.offset_gather import gather_by_offset
from posnet_fairseq.shared.errors import UsageError


class Energy(nn.Module):
    """One summand of a :class:`PositionBasedMixer`'s energy.

    Attributes:
        reach: R if the energy is one of offsets, and those beyond ±R share that of ±R; None if pairs of positions have
            energies of their own.
        cells: the grid that tokens are on, None in a sentence; an energy of offsets then has those of both directions.
    """

    reach: int | None = None
    cells: Grid | None = None

    @property
    def buckets(self) -> Buckets:
        """Which column of a table with a reach pairs use."""
        assert self.reach is not None
        return Buckets("clip", self.reach, self.cells)

    def table(self, at: Tensor, keys: int, positions: Tensor | None, memory_positions: Tensor | None) -> Tensor:
        """Return what can be stored before inference.

        Args:
            at: (N,), ⌊γn⌋ for queries n from 0 on.
            keys: M.
            positions: (P, D) vectors of the queries' positions, None if the mixer does not read them.
            memory_positions: (P, D), of the memory's.

        Returns:
            (H, N, M), or with a reach (H, N or 1, 2R + 1), columns from offset -R to R, on a grid those of `buckets`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define table, which returns energies")

    def forward(self, offsets: Any, positions: Tensor | None, memory_positions: Tensor | None) -> Tensor:
        """Return energies of pairs, (H, N, M).

        `offsets`: (N, M), ⌊γn⌋ - m, or :data:`posnet_fairseq.ops.grid.GridOffsets`; the others as in :meth:`table`.
        """
        if self.cells is None:
            if isinstance(offsets, tuple):
                raise NotImplementedError(f"{type(self).__name__} has no cells: set self.cells = settings.cells")
            at, keys = offsets[:, 0], offsets.size(1)
        else:
            at, keys = torch.arange(self.cells.tokens, device=offsets[0].device), self.cells.tokens
        table = self.table(at, keys, positions, memory_positions)
        if self.reach is None:
            return table
        return gather_by_offset(table.expand(-1, at.size(0), -1), self.buckets.index(offsets))


def enough(vectors: Tensor | None, count: int, name: str) -> Tensor:
    """Return `vectors`, (P, D), or refuse them if P is less than `count`; `name` is the argument that gives them."""
    if vectors is None or vectors.size(0) < count:
        given = "none" if vectors is None else vectors.size(0)
        raise UsageError(f"{name}: give the vectors of {count} positions; there are {given}.")
    return vectors


class StoredEnergy(Energy):
    """The table of another energy with its reach, for sentences up to the length that it was made for."""

    def __init__(self, table: Tensor, reach: int | None, cells: Grid | None = None) -> None:
        super().__init__()
        self.reach, self.cells = reach, cells
        self.stored = nn.Parameter(table, requires_grad=False)

    def table(self, at: Tensor, keys: int, positions: Tensor | None, memory_positions: Tensor | None) -> Tensor:
        """Return rows and columns of the stored one. Padding beyond it repeats the last: nobody reads them."""
        table = _cut_or_repeat(self.stored, 1, at.size(0)) if self.stored.size(1) > 1 else self.stored
        return table if self.reach is not None else _cut_or_repeat(table, 2, keys)


def _cut_or_repeat(table: Tensor, dim: int, size: int) -> Tensor:
    there = table.size(dim)
    if size <= there:
        return table.narrow(dim, 0, size)
    return table.index_select(dim, torch.arange(size, device=table.device).clamp(max=there - 1))
