"""Decoding state of constant size that stays in place when hypotheses move: parent pointers say what each reads.

The value of each token lies where it was written: in the slot of its position, modulo the number of slots, and in the
row that its hypothesis had then. A hypothesis knows its ancestors' rows in the last R + 1 slots. In a band with tails,
beside each value lies the sum of all values up to it, so that all tokens beyond R steps back are one entry.
"""

import torch
from torch import Tensor

from posnet_fairseq.ops.band import Band
from posnet_fairseq.ops.dtypes import float_type


def allocate(new: Tensor, band: Band, memory: Tensor | None) -> Tensor:
    """Return memory for the values of hypotheses, as `new`, (R, H, 1, d), and copy what is in an older one.

    It is (1 or 2, slots, R, H, d): the values, and in a band with tails their sums.
    """
    rows, heads, _, width = new.shape
    rows = rows if memory is None else max(rows, memory.size(2))
    shape = 1 + band.tails, band.clip_distance + 1, rows, heads, width
    larger = torch.empty(shape, dtype=float_type(new), device=new.device)
    if memory is not None:
        larger[:, :, : memory.size(2)] = memory
    return larger


def write(memory: Tensor, ancestors: Tensor, new: Tensor, position: int) -> None:
    """Write the values of one step's tokens, (R, H, 1, d), and the rows of their hypotheses' ancestors, (R, slots)."""
    rows, size = len(ancestors), ancestors.size(1)
    slot = position % size
    values = memory[0, slot, :rows]
    values.copy_(new[:, :, 0])
    if len(memory) == 2:
        sums = memory[1, slot, :rows]
        if position:
            before = (position - 1) % size
            torch.index_select(memory[1, before], 0, ancestors[:, before], out=sums)
            sums += values
        else:
            sums.copy_(values)
    ancestors[:, slot] = torch.arange(rows, dtype=ancestors.dtype, device=ancestors.device)


def mix(memory: Tensor, ancestors: Tensor, weights: Tensor, position: int) -> Tensor:
    """Return sums of the values that each hypothesis descends from, (R, H, 1, d), after :func:`write`.

    `weights`: (H, slots), 0 where there is no token.
    """
    _, size, capacity, heads, width = memory.shape
    rows, used = len(ancestors), min(position + 1, size)
    first = torch.arange(used, device=memory.device) * capacity  # row of each slot
    if used == size and len(memory) == 2:
        first[(position + 1) % size] += size * capacity  # a sum
    entries = ((first + ancestors[:, None, :used]) * heads) + torch.arange(heads, device=memory.device)[:, None]
    each = weights[:, :used].to(memory.dtype).expand(rows, -1, -1).reshape(-1)
    bags = torch.arange(0, rows * heads * used, used, device=memory.device)
    mixed = torch.embedding_bag(memory.view(-1, width), entries.view(-1), bags, False, 0, False, each)[0]
    return mixed.view(rows, heads, 1, width)
