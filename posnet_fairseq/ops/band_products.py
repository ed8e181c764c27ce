"""The computation of :func:`posnet_fairseq.ops.band.mix_band`."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posnet_fairseq.ops.derivatives import once_differentiable


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
