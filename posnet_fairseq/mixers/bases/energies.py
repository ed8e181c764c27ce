"""Energies of positions, and the tables that replace them before inference."""

import torch
from torch import Tensor, nn

from posnet_fairseq.ops.offset_gather import gather_by_offset
from posnet_fairseq.ops.offsets import clip_index
from posnet_fairseq.shared.errors import UsageError


class Energy(nn.Module):
    """One summand of a :class:`PositionBasedMixer`'s energy.

    Attributes:
        reach: R if the energy is one of offsets, and those beyond ±R share that of ±R; None if pairs of positions have
            energies of their own.
    """

    reach: int | None = None

    def table(self, at: Tensor, keys: int, positions: Tensor | None, memory_positions: Tensor | None) -> Tensor:
        """Return what can be stored before inference.

        Args:
            at: (N,), ⌊γn⌋ for queries n from 0 on.
            keys: M.
            positions: (P, D) vectors of the queries' positions, None if the mixer does not read them.
            memory_positions: (P, D), of the memory's.

        Returns:
            (H, N, M), or with a reach (H, N or 1, 2R + 1), columns from offset -R to R.
        """
        raise NotImplementedError

    def forward(self, offsets: Tensor, positions: Tensor | None, memory_positions: Tensor | None) -> Tensor:
        """Return energies of pairs, (H, N, M). `offsets`: (N, M), ⌊γn⌋ - m; the others as in :meth:`table`."""
        queries, keys = offsets.shape
        table = self.table(offsets[:, 0], keys, positions, memory_positions)
        if self.reach is None:
            return table
        return gather_by_offset(table.expand(-1, queries, -1), clip_index(offsets, self.reach))


def enough(vectors: Tensor | None, count: int, name: str) -> Tensor:
    """Return `vectors`, (P, D), or refuse them if P is less than `count`; `name` is the argument that gives them."""
    if vectors is None or vectors.size(0) < count:
        given = "none" if vectors is None else vectors.size(0)
        raise UsageError(f"{name}: give the vectors of {count} positions; there are {given}.")
    return vectors


class StoredEnergy(Energy):
    """The table of another energy with its reach, for sentences up to the length that it was made for."""

    def __init__(self, table: Tensor, reach: int | None) -> None:
        super().__init__()
        self.reach = reach
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
