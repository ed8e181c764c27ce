"""Mixing with weights of clipped offsets, in time that grows linearly with the number of tokens.

Beyond a distance R all tokens on one side of a query have one weight, or none. Queries are grouped into blocks by the
S ≥ 2R tokens at which they stand. All tokens up to R away from a block are in a window of 2S tokens; those farther away
enter as two sums, one for each side, computed once for all blocks: N·(2S + 2) products per feature instead of N·M.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posnet_fairseq.ops.derivatives import once_differentiable
from posnet_fairseq.ops.offsets import scaled

# Blocks of fewer tokens make products too small to be fast; measured in docs/measurements.md.
SMALLEST_BLOCK = 32
# From this number of blocks on it is faster than a product with all tokens; measured there too.
FEWEST_BLOCKS = 6


@dataclass(frozen=True)
class Band:
    """The offsets ⌊γn⌋ - m that have a weight of their own.

    Attributes:
        clip_distance: R.
        tails: True if offsets beyond ±R have the weights of ±R, False if they have none.
        causal: whether queries must not see the tokens that follow them.
    """

    clip_distance: int
    tails: bool
    causal: bool

    @property
    def block_size(self) -> int:
        """S, the number of tokens in a block."""
        return max(SMALLEST_BLOCK, 2 * self.clip_distance)

    def is_faster(self, queries: int, keys: int) -> bool:
        """Return whether, for N queries and M keys, :func:`mix_band` is faster than a product with all tokens."""
        return min(queries, keys) >= FEWEST_BLOCKS * self.block_size

    def hidden(self, offsets: Tensor) -> Tensor | None:
        """Return a mask that is True at offsets, of any shape, that are not mixed; None if all are."""
        future = offsets < 0 if self.causal else None
        if self.tails:
            return future
        outside = offsets.abs() > self.clip_distance
        return outside if future is None else outside | future

    def counts(
        self,
        queries: int,
        keys: int | Tensor,
        length_ratio: tuple[int, int] = (1, 1),
        device: torch.device | None = None,
    ) -> Tensor:
        """Return the number of tokens at each clipped offset, from -R to R, of each query, (N, 2R + 1).

        `keys` is M, or (B, 1, 1) with one M for each sentence, for a result (B, N, 2R + 1).
        """
        at = scaled(torch.arange(queries, device=device), length_ratio)[:, None]
        offsets = torch.arange(-self.clip_distance, self.clip_distance + 1, device=device)
        number = ((at >= offsets) & (at - offsets < keys)).long()
        if self.tails:
            left = (at - self.clip_distance + 1).clamp(min=0).clamp(max=keys)
            right = keys - (at + self.clip_distance).clamp(min=0).clamp(max=keys)
            number = torch.cat([right, number[..., 1:-1], left], dim=-1)
        return number.masked_fill(offsets < 0, 0) if self.causal else number


def mix_band(weights: Tensor, value: Tensor, band: Band, length_ratio: tuple[int, int] = (1, 1)) -> Tensor:
    """Return Σ_m weights[n, clip(⌊γn⌋ - m, ±R) + R] · value[m].

    The sum is over all m, in a band without tails over |⌊γn⌋ - m| ≤ R.

    Args:
        weights: (H, N, 2R + 1), for all sentences; 0 at hidden offsets.
        value: (B, H, M, d).
        band: the offsets that have weights.
        length_ratio: γ as (source tokens, target tokens).

    Returns:
        (B, H, N, d). Sums of many tokens are taken in float32 or wider.
    """
    batch, heads, keys, width = value.shape
    # Queries whose tokens are all more than R behind are in no block: blocks would grow with γ.
    source, target = length_ratio
    queries, size = min(weights.size(1), -(-(keys + band.clip_distance) * target // source)), band.block_size
    weights, beyond = weights.split([queries, weights.size(1) - queries], dim=1)
    place, rows, in_order = _in_blocks(queries, size, length_ratio, value.device)
    blocks, of_block = rows.shape
    # The window of a block begins R tokens before it. With all tokens moved on by R it is two whole blocks.
    behind = max((blocks + 1) * size - band.clip_distance - keys, -(band.clip_distance + keys) % size)
    padded = F.pad(value.permute(1, 2, 0, 3), (0, 0, 0, 0, band.clip_distance, behind))
    columns = padded.flatten(2).unflatten(1, (-1, size))
    empty = weights.new_zeros(heads, blocks * of_block, weights.size(2))
    weights = empty.index_copy(1, place, weights).unflatten(1, (blocks, of_block))
    with torch.autocast(value.device.type, enabled=False):
        mixed = BandProducts.apply(weights, columns, rows, band.tails).flatten(1, 2)
    mixed = mixed[:, :queries] if in_order else mixed.index_select(1, place)
    mixed = mixed.unflatten(2, (batch, width)).permute(2, 0, 1, 3)
    if not beyond.size(1):
        return mixed
    sums = value.sum(dim=2, keepdim=True, dtype=torch.promote_types(value.dtype, torch.float32))
    return torch.cat([mixed, (beyond[..., -1:] * (sums if band.tails else 0 * sums)).to(mixed.dtype)], dim=2)


def _in_blocks(
    queries: int, size: int, length_ratio: tuple[int, int], device: torch.device
) -> tuple[Tensor, Tensor, bool]:
    """Assign queries to blocks by the token at which they stand, ⌊γn⌋.

    Returns (N,), the place of each query; (blocks, Q), the position inside its block of the query at each place; and
    whether each query's place is its number.
    """
    source, target = length_ratio
    blocks = scaled(queries - 1, length_ratio) // size + 1
    # The first query of each block: the smallest n with ⌊γn⌋ of `size` times its number or more.
    first = [min(queries, -(-block * size * target // source)) for block in range(blocks + 1)]
    of_block = max(end - begin for begin, end in itertools.pairwise(first))
    n = torch.arange(queries, device=device)
    at = scaled(n, length_ratio)
    block = at // size
    place = n + block * of_block - -(-block * size * target // source)
    rows = torch.zeros(blocks * of_block, dtype=torch.long, device=device).index_copy(0, place, at % size)
    return place, rows.view(-1, of_block), first[-2] == (blocks - 1) * of_block


class BandProducts(torch.autograd.Function):
    """Products of blocks of queries with windows of tokens.

    Weights are in float32 or wider: the gradient of a tail's weight is a sum over all tokens of the tail.
    """

    @staticmethod
    def forward(ctx: Any, weights: Tensor, columns: Tensor, rows: Tensor, tails: bool) -> Tensor:
        """Return (H, blocks, Q, C) of weights (H, blocks, Q, 2R + 1), columns (H, blocks + 1 or more, S, C)."""
        ctx.tails = tails
        ctx.save_for_backward(weights, columns, rows)
        near = _near(weights.to(columns.dtype), rows, columns.size(2), tails)
        mixed = columns.new_empty(*weights.shape[:3], columns.size(3))
        for head, tokens in enumerate(columns):
            torch.bmm(near[head], _windows(tokens, len(rows)), out=mixed[head])
        if tails:
            _add_products(mixed, _outermost(weights), _far(columns, len(rows)))
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the weights and the columns."""
        weights, columns, rows = ctx.saved_tensors
        gradient, blocks, size, tails = gradient.contiguous(), len(rows), columns.size(2), ctx.tails
        near = _near(weights.to(columns.dtype), rows, size, tails)
        to_near, to_columns = torch.empty_like(near), torch.zeros_like(columns)
        for head, upstream in enumerate(gradient):
            torch.bmm(upstream, _windows(columns[head], blocks).mT, out=to_near[head])
            to_columns[head, :blocks].baddbmm_(near[head, ..., :size].mT, upstream)
            to_columns[head, 1 : blocks + 1].baddbmm_(near[head, ..., size:].mT, upstream)
        to_weights = _to_weights(to_near.to(weights.dtype), rows, weights.size(3), tails)
        if tails:
            far = _far(columns, blocks)
            gradient = gradient.to(far.dtype)
            to_left, to_right = (gradient @ far.mT).unbind(dim=3)
            to_weights[..., -1] += to_left
            to_weights[..., 0] += to_right
            to_sums = _to_sums(_outermost(weights).mT.to(far.dtype) @ gradient, columns.size(1))
            to_columns += to_sums.unsqueeze(2).to(columns.dtype)
        return to_weights, to_columns, None, None


def _near(weights: Tensor, rows: Tensor, size: int, tails: bool) -> Tensor:
    """Return the weights of the tokens in each block's window, (H, blocks, Q, 2S)."""
    clip_distance = weights.size(3) // 2
    offsets = rows[..., None] + clip_distance - torch.arange(2 * size, device=rows.device)
    index = offsets.clamp(-clip_distance, clip_distance) + clip_distance
    near = weights.gather(3, index.expand(len(weights), -1, -1, -1))
    return near if tails else near.masked_fill_(offsets.abs() > clip_distance, 0)


def _to_weights(to_near: Tensor, rows: Tensor, columns: int, tails: bool) -> Tensor:
    """Return the transpose of :func:`_near`, (H, blocks, Q, 2R + 1)."""
    rows = rows[..., None]
    at = rows + columns - 1 - torch.arange(columns, device=rows.device)  # of each offset in the window
    to_weights = to_near.gather(3, at.expand(len(to_near), -1, -1, -1))
    if tails:
        window = torch.arange(to_near.size(3), device=rows.device)
        for column, beyond in ((-1, window <= rows), (0, window >= rows + columns - 1)):
            to_weights[..., column] = (to_near * beyond).sum(dim=-1)
    return to_weights


def _outermost(weights: Tensor) -> Tensor:
    """Return the weights of the left and the right tail, (H, blocks, Q, 2)."""
    return torch.stack([weights[..., -1], weights[..., 0]], dim=-1)


def _windows(tokens: Tensor, blocks: int) -> Tensor:
    """Return each of the first blocks joined with its successor, (blocks, 2S, C), a view of contiguous tokens."""
    _, size, width = tokens.shape
    return tokens.as_strided((blocks, 2 * size, width), (size * width, width, 1))


def _far(columns: Tensor, blocks: int) -> Tensor:
    """Return the sums of the tokens to the left and to the right of each block's window, (H, blocks, 2, C)."""
    sums = columns.sum(dim=2, dtype=torch.promote_types(columns.dtype, torch.float32))
    # Each side is summed from its own end: as a difference it would lose digits.
    left = F.pad(sums.cumsum(1)[:, : blocks - 1], (0, 0, 1, 0))
    right = F.pad(_cumsum_from_the_end(sums), (0, 0, 0, 1))[:, 2 : blocks + 2]
    return torch.stack([left, right], dim=2)


def _to_sums(to_far: Tensor, blocks: int) -> Tensor:
    """Return the transpose of :func:`_far` with respect to the sums of all blocks of tokens, (H, blocks, C)."""
    left, right = to_far.unbind(dim=2)
    left = F.pad(_cumsum_from_the_end(left)[:, 1:], (0, 0, 0, blocks - left.size(1) + 1))
    before = (torch.arange(blocks, device=right.device) - 1).clamp(0, right.size(1))
    return left + F.pad(right.cumsum(1), (0, 0, 1, 0)).index_select(1, before)


def _cumsum_from_the_end(x: Tensor) -> Tensor:
    return x.flip(1).cumsum(1).flip(1)


def _add_products(mixed: Tensor, weights: Tensor, sums: Tensor) -> None:
    """Add weights @ sums to ``mixed`` in place, in the precision of the sums."""
    for head, out in enumerate(mixed):
        if out.dtype == sums.dtype:
            out.baddbmm_(weights[head].to(sums.dtype), sums[head])
        else:
            out += weights[head].to(sums.dtype) @ sums[head]
