"""Attention with energies of buckets, in blocks that stay in a cache.

Energies are q·k plus, for every pair, what the query has for the bucket of the pair. The weights of all pairs, N·M for
each head, are never there together: the backward pass makes those of a block again, from the logarithm of each query's
sum of exponentials, which is all that is kept beside the arguments and the result.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from posnet_fairseq.ops import chunks
from posnet_fairseq.ops.derivatives import once_differentiable
from posnet_fairseq.ops.masking import masked_energy

# Energies per block on a CPU, at most. Half as many to four times as many were equally fast.
CPU_BLOCK = 2**19
# Of one bucket, in the backward pass.
SUMS = 4


def is_faster(q: Tensor, keys: int, rows: int) -> bool:
    """Return whether :func:`attend` takes these queries, and they have too many weights to keep them.

    A table of many rows, T, would take more memory than the queries themselves.
    """
    limit = chunks.CPU_LIMIT if q.device.type == "cpu" else chunks.GPU_LIMIT
    is_plain = q.dtype in (torch.float32, torch.float64) and not torch.compiler.is_compiling()
    return is_plain and rows <= 2 * max(32, q.size(-1)) and q.numel() // q.size(-1) * keys > limit


def attend(q: Tensor, k: Tensor, v: Tensor, table: Tensor, index: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Return Σ_m softmax_m(q_n·k_m + table[n, index[n, m]]) v_m, (B, H, N, d).

    Args:
        q, k, v: (B, H, N, d), (B, H, M, d) and (B, H, M, d), contiguous, in float32 or float64.
        table: (B or 1, H, N or 1, T).
        index: (N, M), rows of the table.
        padding_mask: (B, M), True at padding; or None.
    """
    padding = None if padding_mask is None else padding_mask.repeat_interleave(q.size(1), dim=0)[:, None]
    of_heads = (x.flatten(0, 1) for x in (q, k, v, table.expand(*q.shape[:3], -1)))
    return _Attention.apply(*of_heads, index, padding).view_as(q)


class _Attention(torch.autograd.Function):
    """Arguments have sentences and heads in one dimension; `padding` is (B·H, 1, M)."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        q, k, v, table, index, padding = arguments
        mixed, sums = torch.empty_like(q), q.new_empty(*q.shape[:2], 1)
        for block in _blocks(q, k, table, index, padding):
            greatest = block.energy.amax(dim=-1, keepdim=True)
            weights = block.energy.sub_(greatest).exp_()
            total = weights.sum(dim=-1, keepdim=True)
            torch.bmm(weights, v[block.heads], out=mixed[block.rows]).div_(total)
            sums[block.rows] = total.log_().add_(greatest)
        ctx.save_for_backward(*arguments, mixed, sums)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_mixed: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, table, index, padding, mixed, sums = ctx.saved_tensors
        to_mixed = to_mixed.contiguous()
        to_q, to_k, to_v, to_table = (
            torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (q, k, v, table)
        )
        # Neighboring keys are often of one bucket: in turn they are added to one of several sums, so that none waits.
        rows_of_table = table.size(-1)
        of_sums = index + rows_of_table * (torch.arange(index.size(1), device=q.device) % SUMS)
        for block in _blocks(q, k, table, index, padding, sums):
            heads, rows = block.heads, block.rows
            weights, upstream = block.energy.exp_(), to_mixed[rows]
            share = (upstream * mixed[rows]).sum(dim=-1, keepdim=True)
            to_v[heads].baddbmm_(weights.mT, upstream)
            to_energy = torch.bmm(upstream, v[heads].mT, out=block.spare).sub_(share).mul_(weights)
            torch.bmm(to_energy, k[heads], out=to_q[rows])
            to_k[heads].baddbmm_(to_energy.mT, q[rows])
            of_block = of_sums[rows[1]].expand_as(to_energy)
            added = q.new_zeros(*to_energy.shape[:2], SUMS * rows_of_table).scatter_add_(-1, of_block, to_energy)
            torch.sum(added.unflatten(-1, (SUMS, -1)), dim=-2, out=to_table[rows])
        return to_q, to_k, to_v, to_table, None, None


class _Block:
    """Some heads, or some queries of one head, with their energies and as much memory to spare, (h, n, M)."""

    def __init__(self, heads: slice, queries: slice, energy: Tensor, spare: Tensor, index: Tensor) -> None:
        self.heads, self.rows = heads, (heads, queries)
        self.energy, self.spare, self.index = energy, spare, index


def _blocks(
    q: Tensor, k: Tensor, table: Tensor, index: Tensor, padding: Tensor | None, sums: Tensor | None = None
) -> Iterator[_Block]:
    """Return blocks that together hold every query once, all in the same memory; energies are without `sums`."""
    number, (queries, keys) = len(q), index.shape
    limit = (CPU_BLOCK if q.device.type == "cpu" else chunks.GPU_LIMIT) // keys
    many = max(1, min(number, limit // queries))
    some = -(-queries // -(-queries // max(1, limit)))  # parts of equal size
    room = q.new_empty(2, many * some * keys)
    for head in range(0, number, many):
        heads = slice(head, head + many)
        for first in range(0, queries, some):
            rows = heads, slice(first, first + some)
            size = len(q[heads]), index[rows[1]].size(0), keys
            energy, spare = (memory[: size[0] * size[1] * keys].view(size) for memory in room)
            of_block = index[rows[1]].expand(size)
            of_rows = table[rows] if sums is None else table[rows] - sums[rows]
            torch.gather(of_rows, -1, of_block, out=energy).baddbmm_(q[rows], k[heads].mT)
            if padding is not None:
                energy.masked_fill_(padding[heads], masked_energy(energy.dtype))
            yield _Block(*rows, energy, spare, of_block)
