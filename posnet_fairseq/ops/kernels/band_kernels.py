"""The band on GPUs: :func:`posnet_fairseq.ops.band.mix_band` without its copies of windows and weights.

A program takes a block of queries and the few blocks of tokens that it has a token up to R from; sums of whole blocks
stand for the tails beyond. The gradient of the values takes a block of tokens and its blocks of queries instead.
They are operators of torch, which compiles and traces around them.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posnet_fairseq.ops import band
from posnet_fairseq.ops.derivatives import once_differentiable
from posnet_fairseq.ops.kernels import band_programs
from posnet_fairseq.ops.kernels.launching import blocks, dense_rows, empty_by_rows, launch, precision, strides

# A window of 64 queries and R = 16 is 4 blocks of 32 tokens, or 3 of 64.
QUERIES = 64
KEYS = 32
# Sentences over which one program sums the gradient of weights.
SENTENCES = 8


def mix_band(weights: Tensor, value: Tensor, which: band.Band, length_ratio: tuple[int, int] = (1, 1)) -> Tensor:
    """Return what :func:`posnet_fairseq.ops.band.mix_band` returns, of values in float32 or less."""
    return _mix(weights.float(), value, which.clip_distance, which.tails, *length_ratio)


@torch.library.custom_op("posnet::mix_band", mutates_args=())
def _mix(weights: Tensor, value: Tensor, clip_distance: int, tails: bool, source: int, target: int) -> Tensor:
    weights, value = weights.contiguous(), dense_rows(value)
    (batch, heads, keys, width), queries = value.shape, weights.size(1)
    mixed = empty_by_rows(batch, heads, queries, width, value)
    before = after = weights
    if tails:
        sums = _sums(value, KEYS)
        before, after = _before(sums), _after(sums)
    grid = batch * heads, blocks(queries, QUERIES), blocks(width, _features(width))
    sizes = heads, queries, keys, width, source, target, *strides(value), *strides(mixed)
    _launch(band_programs.mix, grid, weights, value, before, after, mixed, *sizes, R=clip_distance, TAILS=tails)
    return mixed


@_mix.register_fake
def _(weights: Tensor, value: Tensor, clip_distance: int, tails: bool, source: int, target: int) -> Tensor:
    batch, heads, _, width = value.shape
    return empty_by_rows(batch, heads, weights.size(1), width, value)


@torch.library.custom_op("posnet::mix_band_transposed", mutates_args=())
def _to_value(
    weights: Tensor, upstream: Tensor, keys: int, clip_distance: int, tails: bool, source: int, target: int
) -> Tensor:
    """The gradient of the values."""
    weights, upstream = weights.contiguous(), dense_rows(upstream)
    batch, heads, queries, width = upstream.shape
    to_value = empty_by_rows(batch, heads, keys, width, upstream)
    before = after = weights
    if tails:  # the tail on the right is that of the queries on the left
        before = _before(_sums(upstream, QUERIES, weights, 0))
        after = _after(_sums(upstream, QUERIES, weights, 2 * clip_distance))
    grid = batch * heads, blocks(keys, KEYS), blocks(width, _features(width))
    sizes = heads, queries, keys, width, source, target, *strides(upstream), *strides(to_value)
    tensors = weights, upstream, before, after, to_value
    _launch(band_programs.mix_transposed, grid, *tensors, *sizes, R=clip_distance, TAILS=tails)
    return to_value


@_to_value.register_fake
def _(
    weights: Tensor, upstream: Tensor, keys: int, clip_distance: int, tails: bool, source: int, target: int
) -> Tensor:
    batch, heads, _, width = upstream.shape
    return empty_by_rows(batch, heads, keys, width, upstream)


@torch.library.custom_op("posnet::mix_band_weight_gradient", mutates_args=())
def _to_weights(upstream: Tensor, value: Tensor, clip_distance: int, tails: bool, source: int, target: int) -> Tensor:
    """The gradient of the weights, in float32."""
    upstream, value = dense_rows(upstream), dense_rows(value)
    (batch, heads, keys, width), queries = value.shape, upstream.size(2)
    groups = blocks(batch, SENTENCES)
    parts = upstream.new_zeros(groups, heads, queries, 2 * clip_distance + 1, dtype=torch.float32)
    before = after = parts
    if tails:
        sums = _sums(value, KEYS)
        before, after = _before(sums), _after(sums)
    grid = groups, heads, blocks(queries, QUERIES)
    sizes = batch, heads, queries, keys, width, source, target, *strides(upstream), *strides(value)
    constants = {"R": clip_distance, "TAILS": tails, "SENTENCES": SENTENCES}
    _launch(band_programs.weight_gradient, grid, upstream, value, before, after, parts, *sizes, **constants)
    return parts.sum(dim=0)


@_to_weights.register_fake
def _(upstream: Tensor, value: Tensor, clip_distance: int, tails: bool, source: int, target: int) -> Tensor:
    _, heads, queries, _ = upstream.shape
    return upstream.new_empty(heads, queries, 2 * clip_distance + 1, dtype=torch.float32)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    weights, value, *ctx.settings = inputs
    ctx.save_for_backward(weights, value)


@once_differentiable
def _backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
    weights, value = ctx.saved_tensors
    for_weights, for_value, *_ = ctx.needs_input_grad
    to_weights = _to_weights(upstream, value, *ctx.settings) if for_weights else None
    to_value = _to_value(weights, upstream, value.size(2), *ctx.settings) if for_value else None
    return to_weights, to_value, None, None, None, None


_mix.register_autograd(_backward, setup_context=_setup)


def _launch(program: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    width = arguments[-9]
    tile = {"QUERIES": QUERIES, "KEYS": KEYS, "WIDTH": _features(width)}
    launch(program, grid, *arguments, PRECISION=precision(), **tile, **constants)


def _sums(x: Tensor, block: int, weights: Tensor | None = None, column: int = -1) -> Tensor:
    """Return sums (B, H, blocks, d) of blocks of rows of ``x``, (B, H, N, d), weighted by a column of the weights."""
    batch, heads, rows, width = x.shape
    number, features = blocks(rows, block), _features(width)
    sums = x.new_empty(batch, heads, number, width, dtype=torch.float32)
    columns = 0 if weights is None else weights.size(2)
    arguments = x, sums if weights is None else weights, sums, heads, rows, width, *strides(x)
    grid = batch * heads, number, blocks(width, features)
    constants = {"COLUMN": column, "COLUMNS": columns, "BLOCK": block, "WIDTH": features}
    launch(band_programs.sum_blocks, grid, *arguments, **constants)
    return sums


def _before(sums: Tensor) -> Tensor:
    """Return the sums of all blocks before each and before the end, (B, H, blocks + 1, d)."""
    return F.pad(sums.cumsum(dim=2), (0, 0, 1, 0))


def _after(sums: Tensor) -> Tensor:
    """Return the sums of each block and all after it, and 0 after the end, (B, H, blocks + 1, d)."""
    return F.pad(sums.flip(2).cumsum(dim=2).flip(2), (0, 0, 0, 1))  # as a difference it would lose digits


def _features(width: int) -> int:
    """Return how many features a program computes: a power of two that products take."""
    return min(64, max(16, 1 << (width - 1).bit_length()))
