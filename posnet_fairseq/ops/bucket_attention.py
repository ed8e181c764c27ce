"""Attention on a grid with what pairs have for their buckets, in blocks that stay in a cache.

The energy of a pair is q·k, plus what the query and what the key have for the bucket of the pair; values may have a
part for buckets, too. The weights of all pairs, N·N for each head, are never there together: the backward pass makes
those of a block again, from the logarithm of each query's sum of exponentials.

The buckets of two rows of cells depend on the offset of these rows, and on the columns. Many offsets of rows have the
same: such a *strip*, (C, C) buckets, is looked up once, and all else is copying and adding whole rows of cells. Extra
tokens are the end of a row, or of P rows, in front, with a strip of their own. Pairs are stored with the queries of a
row last, so that what is added is contiguous.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posnet_fairseq.ops import chunks
from posnet_fairseq.ops.derivatives import once_differentiable
from posnet_fairseq.ops.grid import Grid
from posnet_fairseq.ops.masking import masked_energy

# Maximum number of energies per block on a CPU. Doubling it changes nothing; halving it is slower.
CPU_BLOCK = 2**18


def is_faster(q: Tensor, keys: int, buckets: int) -> bool:
    """Return whether :func:`attend` takes these queries, and they have too many weights to keep them.

    What queries have for many buckets, T, would take more memory than the queries themselves.
    """
    limit = chunks.CPU_LIMIT if q.device.type == "cpu" else chunks.GPU_LIMIT
    is_plain = q.dtype in (torch.float32, torch.float64) and not (q.is_meta or torch.compiler.is_compiling())
    return is_plain and buckets <= 2 * max(32, q.size(-1)) and q.numel() // q.size(-1) * keys > limit


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    of_queries: Tensor | None,
    key_vectors: Tensor | None,
    value_vectors: Tensor | None,
    index: Tensor,
    grid: Grid,
    padding_mask: Tensor | None,
) -> Tensor:
    """Return Σ_m α_nm (v_m + r^V_i), α_n = softmax_m(q_n·k_m + of_queries[n, i] + k_m·r^Q_i), i = index[n, m].

    Args:
        q, k, v: (B, H, N, d), in float32 or float64.
        of_queries: (B or 1, H, N or 1, T); None for 0, as the next two.
        key_vectors, value_vectors: r^Q and r^V, (H or 1, T, d).
        index: (N, N), the bucket of every pair: of pairs of cells by their offsets, of pairs with an extra token one.
        grid: of the tokens.
        padding_mask: (B, N), True at padding; or None.
    """
    batch, heads, tokens, _ = q.shape
    vectors = [
        None if x is None else x.expand(batch, heads, -1, -1).flatten(0, 1) for x in (key_vectors, value_vectors)
    ]
    if of_queries is None:
        of_queries = q.new_zeros(next(x.size(1) for x in vectors if x is not None))
    of_queries = of_queries.expand(batch, heads, tokens, -1)
    # Contiguous: they are read in blocks, several times, and what they are views of is freed.
    of_heads = [x.flatten(0, 1).contiguous() for x in (q, k, v, of_queries)]
    padding = None if padding_mask is None else padding_mask.repeat_interleave(heads, dim=0).unsqueeze(2)
    blocks = _Blocks(q, index, grid, of_queries.size(3))
    return _Attention.apply(*of_heads, *vectors, padding, blocks).unflatten(0, (batch, heads))


class _Attention(torch.autograd.Function):
    """Arguments have sentences and heads in one dimension, G; `padding` is (G, N, 1)."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        *tensors, padding, blocks = arguments
        _, _, values, buckets, _, of_values = tensors
        mixed, norms = torch.empty_like(values), values.new_empty(*values.shape[:2], 1)
        sums = None if of_values is None else torch.empty_like(buckets)
        for head in range(len(mixed)):
            q, k, v, of_queries, key_vectors, value_vectors, hidden = _of_head(head, *tensors, padding)
            of_keys = None if key_vectors is None else blocks.of_keys(k @ key_vectors.mT)
            for block in blocks.all:
                energy = blocks.energy(block, block.by_row(q), k, block.by_row(of_queries), of_keys, hidden)
                greatest = blocks.real(energy).amax(dim=1, keepdim=True)
                weights = blocks.without_padding(energy.sub_(greatest).exp_())
                total = weights.sum(dim=1, keepdim=True)
                rows = block.by_row(mixed[head])
                torch.bmm(blocks.real(weights).mT, v.expand(block.rows, -1, -1), out=rows)
                rows /= total.mT
                if sums is not None:
                    of_rows = block.by_row(sums[head])
                    torch.div(block.sum_by_bucket(weights, sums.size(2)), total.mT, out=of_rows)
                    rows += of_rows @ value_vectors
                block.by_row(norms[head]).copy_(total.log_().add_(greatest).mT)
        ctx.save_for_backward(*tensors, padding, mixed, norms, sums)
        ctx.blocks = blocks
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_mixed: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, padding, mixed, norms, sums = ctx.saved_tensors
        blocks = ctx.blocks
        share = (to_mixed * mixed).sum(dim=-1, keepdim=True)
        gradients = [None if x is None else torch.zeros_like(x) for x in tensors]
        for head in range(len(mixed)):
            q, k, v, of_queries, key_vectors, value_vectors, hidden = _of_head(head, *tensors, padding)
            to_q, to_k, to_v, to_queries, to_key_vectors, to_value_vectors = _of_head(head, *gradients)
            of_keys = None if key_vectors is None else blocks.of_keys(k @ key_vectors.mT)
            to_keys = None if of_keys is None else torch.zeros_like(of_keys)
            of_rows = of_queries - norms[head]
            of_weights = -share[head].expand_as(of_queries)
            if value_vectors is not None:
                to_value_vectors.addmm_(sums[head].mT, to_mixed[head])
                of_weights = of_weights + to_mixed[head] @ value_vectors.mT
            for block in blocks.all:
                queries, upstream = block.by_row(q), block.by_row(to_mixed[head])
                energy = blocks.energy(block, queries, k, block.by_row(of_rows), of_keys, hidden)
                weights = blocks.without_padding(energy.exp_())
                to_v.addbmm_(blocks.real(weights), upstream)
                to_energy = blocks.products(block, v, upstream, block.by_row(of_weights)).mul_(weights)
                torch.bmm(blocks.real(to_energy).mT, k.expand(block.rows, -1, -1), out=block.by_row(to_q))
                to_k.addbmm_(blocks.real(to_energy), queries)
                if ctx.needs_input_grad[3]:
                    block.by_row(to_queries).copy_(block.sum_by_bucket(to_energy, to_queries.size(1)))
                if to_keys is not None:
                    block.add_to_keys(to_energy, to_keys)
            if to_keys is not None:
                to_table = blocks.to_table(to_keys, k.new_zeros(len(k), len(key_vectors)))
                to_k.addmm_(to_table, key_vectors)
                to_key_vectors.addmm_(to_table.mT, k)
        return *gradients, None, None


def _of_head(head: int, *tensors: Tensor | None) -> list[Any]:
    return [None if x is None else x[head] for x in tensors]


@dataclass
class _Block:
    """Queries of some rows of cells, or extra tokens. Their pairs of a head are (rows, (P + R)·C, n).

    Attributes:
        queries: of all tokens.
        rows: their number.
        columns: of a row.
        buckets: (rows·S·C·n), keys before queries: of all strips, plus T·i for the query i.
        strips: (rows·(P + R)), of the rows of queries and of keys, as numbers of rows·S.
        rows_of_strips: the same as numbers of S·(P + R).
    """

    queries: slice
    rows: int
    columns: slice
    buckets: Tensor
    strips: Tensor
    rows_of_strips: Tensor

    def by_row(self, tokens: Tensor) -> Tensor:
        """Return a view of `tokens`, (N, c), of the queries, (rows, n, c)."""
        return tokens[self.queries].unflatten(0, (self.rows, -1))

    def set_of_queries(self, pairs: Tensor, of_queries: Tensor) -> None:
        """Set `pairs` to what queries have for buckets, (rows, n, T)."""
        by_row = pairs.view(len(self.strips), -1)
        strips = of_queries.flatten().index_select(0, self.buckets).view(-1, by_row.size(1))
        torch.index_select(strips, 0, self.strips, out=by_row)

    def sum_by_bucket(self, pairs: Tensor, count: int) -> Tensor:
        """Return the sums of `pairs` in each bucket, (rows, n, T): the transpose of :meth:`set_of_queries`."""
        by_row = pairs.view(len(self.strips), -1)
        strips = pairs.new_zeros(len(self.buckets) // by_row.size(1), by_row.size(1))
        strips.index_add_(0, self.strips, by_row)
        sums = pairs.new_zeros(self.rows * pairs.size(2) * count)
        return sums.index_add_(0, self.buckets, strips.flatten()).view(self.rows, -1, count)

    def add_of_keys(self, pairs: Tensor, of_keys: Tensor) -> None:
        """Add what keys have for buckets, of strips (S·(P + R), C, C)."""
        strips = of_keys[..., self.columns]
        pairs += strips.index_select(0, self.rows_of_strips).view_as(pairs)

    def add_to_keys(self, pairs: Tensor, of_keys: Tensor) -> None:
        """Add `pairs` to what keys have for buckets: the transpose of :meth:`add_of_keys`."""
        strips = of_keys[..., self.columns]
        strips.index_add_(0, self.rows_of_strips, pairs.view(-1, *strips.shape[1:]))


class _Blocks:
    """Blocks that together hold every query once, in ``all``, with memory that they share."""

    def __init__(self, q: Tensor, index: Tensor, grid: Grid, count: int) -> None:
        rows, columns, extra = grid.rows, grid.columns, grid.extra_tokens
        in_front = -(-extra // columns)  # P
        self._padding = in_front * columns - extra
        cells = index[extra:, extra:].unflatten(1, (rows, columns)).unflatten(0, (rows, columns))
        # By the offset of rows from R - 1 to 1 - R: (2R - 1, C, C), keys before queries.
        by_offset = torch.cat([cells[:, :, 0].mT.flip(0), cells[0, :, 1:].movedim(0, 2)])
        strips, strip_of_offset = torch.unique_consecutive(by_offset, dim=0, return_inverse=True)
        of_extra = strip_of_offset.new_full((in_front,), len(strips))
        strips = torch.cat([strips, index[:1, :1].expand(1, columns, columns)])
        # Of each row of queries, extra tokens first, the strips of the rows of keys.
        of_rows = [torch.cat([of_extra, strip_of_offset[row : row + rows]]) for row in reversed(range(rows))]
        all_extra = strip_of_offset.new_full((1, in_front + rows), len(strips) - 1)
        limit = max(1, (CPU_BLOCK if q.device.type == "cpu" else chunks.GPU_LIMIT) // grid.tokens)
        most = -(-columns // -(-columns // limit))  # parts of equal size
        of_block = max(1, min(rows, limit // most))
        self._memory = q.new_empty(2, of_block * most * (in_front + rows) * columns)
        self._columns, self._keys = columns, (in_front + rows) * columns
        tokens = torch.arange(-self._padding, grid.tokens, device=q.device).clamp(min=0).view(-1, columns, 1)
        self._numbers = (tokens * count + strips[:, None]).flatten()
        row = torch.arange(in_front + rows, device=q.device)

        def block(first: int, part: slice, of_rows: Tensor) -> _Block:
            width, number = part.stop - part.start, len(of_rows)
            query = torch.arange(number * width, device=q.device).view(-1, 1, 1, width)
            return _Block(
                queries=slice(first, first + number * width),
                rows=number,
                columns=part,
                buckets=(strips[..., part] + count * query).flatten(),
                strips=(of_rows + len(strips) * row[:number, None]).flatten(),
                rows_of_strips=(of_rows * len(row) + row).flatten(),
            )

        self.all = [block(part.start, slice(0, part.stop - part.start), all_extra) for part in _parts(extra, most)]
        for part in _parts(columns, most):
            for some in _parts(rows, of_block if most == columns else 1):
                first = extra + some.start * columns + part.start
                self.all.append(block(first, part, torch.stack(of_rows[some])))

    def real(self, pairs: Tensor) -> Tensor:
        """Return `pairs` of real tokens, (rows, N, n)."""
        return pairs[:, self._padding :]

    def without_padding(self, pairs: Tensor) -> Tensor:
        """Return `pairs` with 0 where there is no token."""
        pairs[:, : self._padding] = 0
        return pairs

    def energy(
        self, block: _Block, q: Tensor, k: Tensor, of_queries: Tensor, of_keys: Tensor | None, padding: Tensor | None
    ) -> Tensor:
        """Return the energies of a block."""
        energy = self.products(block, k, q, of_queries, 1)
        if of_keys is not None:
            block.add_of_keys(energy, of_keys)
        if padding is not None:
            self.real(energy).masked_fill_(padding, masked_energy(energy.dtype))
        return energy

    def products(self, block: _Block, keys: Tensor, queries: Tensor, of_queries: Tensor, memory: int = 0) -> Tensor:
        """Return products of keys, (N, d), and queries, (rows, n, d), plus what queries have, in either memory."""
        shape = len(queries), self._keys, queries.size(1)
        pairs = self._memory[memory][: math.prod(shape)].view(shape)
        block.set_of_queries(pairs, of_queries)
        self.real(pairs).baddbmm_(keys.expand(len(queries), -1, -1), queries.mT)
        return pairs

    def of_keys(self, table: Tensor) -> Tensor:
        """Return what keys have for each row of a table, (N, T), for pairs of strips, (S·(P + R), C, C)."""
        columns = self._columns
        return table.flatten().index_select(0, self._numbers).view(-1, columns, columns)

    def to_table(self, strips: Tensor, table: Tensor) -> Tensor:
        """Add to `table`, (N, T): the transpose of :meth:`of_keys`."""
        table.view(-1).index_add_(0, self._numbers, strips.flatten())
        return table


def _parts(size: int, most: int) -> list[slice]:
    return [slice(first, min(first + most, size)) for first in range(0, size, most)]
