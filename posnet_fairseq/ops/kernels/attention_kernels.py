"""Attention with an energy for every offset on GPUs, without a table (N, M) in memory.

α̂_nm = q_n·k_m + t_n[row(⌊γn⌋ - m)]. Scalars of relative positions are a table t of one row for all queries; vectors
that queries are multiplied with are a table q·rᵀ, (B, H, N, T), as :mod:`posnet_fairseq.ops.offset_gather` has it.

:func:`torch.nn.attention.flex_attention.flex_attention` has such energies too, but no dropout of weights, which nearly
all trainings use; nor can its gradients be tested without a GPU, as it has none on CPUs.
"""

from typing import Any

import torch
from torch import Tensor

from posnet_fairseq.ops.derivatives import once_differentiable
from posnet_fairseq.ops.kernels import attention_programs
from posnet_fairseq.ops.kernels.launching import blocks, dense_rows, empty_by_rows, launch, precision, strides

# With these tiles every program needs less than the 99 KiB of fast memory that GPUs for desktops have.
QUERIES = {torch.float32: 32, torch.float16: 64, torch.bfloat16: 64}
STAGES = {torch.float32: 1, torch.float16: 3, torch.bfloat16: 3}
KEYS = 32
WIDEST_HEAD = 128


def takes(q: Tensor) -> bool:
    """Return whether :func:`attend` takes queries (B, H, N, d), where kernels are used.

    It is not where torch's deterministic algorithms are asked for: tables' gradients are added in no certain order.
    """
    return q.size(3) <= WIDEST_HEAD and not torch.are_deterministic_algorithms_enabled()


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    index: Tensor,
    padding_mask: Tensor | None = None,
    drop_probability: float = 0.0,
    causal: bool = False,
    length_ratio: tuple[int, int] = (1, 1),
) -> Tensor:
    """Return Σ_m α_nm v_m, (B, H, N, d), where α is the softmax of q_n·k_m + table[n, index[⌊γn⌋ - m + M - 1]].

    Args:
        q: (B, H, N, d), already divided by √d.
        k: (B, H, M, d).
        v: (B, H, M, d).
        table: (B or 1, H, N or 1, T).
        index: (⌊γ(N - 1)⌋ + M,), the row of each offset from 1 - M on.
        padding_mask: (B, M), True at padding; None without padding.
        drop_probability: with which a weight is dropped.
        causal: whether queries must not see tokens at offsets below 0.
        length_ratio: γ as (source tokens, target tokens).
    """
    seed = torch.randint(2**31, (), device=q.device) if drop_probability else None
    k, v, index = k.to(q.dtype), v.to(q.dtype), index.int()
    settings = float(drop_probability), causal, *length_ratio
    return _attend(q, k, v, table, index, padding_mask, seed, *settings)[0]


@torch.library.custom_op("posnet::attend", mutates_args=())
def _attend(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, index: Tensor, padding: Tensor | None, seed: Tensor | None,
    drop: float, causal: bool, source: int, target: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    q, k, v, table = dense_rows(q), dense_rows(k), dense_rows(v), dense_rows(table)
    batch, heads, queries, width = q.shape
    mixed = empty_by_rows(batch, heads, queries, width, q)
    statistics = q.new_empty(batch, heads, queries, 2, dtype=torch.float32)
    sizes = heads, queries, k.size(2), width, source, target
    steps = *strides(q), *strides(k), *strides(v), *_table_strides(table), *strides(mixed)
    tensors = q, k, v, table, *_optional(index, padding, seed), mixed, statistics
    grid = batch * heads, blocks(queries, QUERIES[q.dtype])
    launch(attention_programs.attend, grid, *tensors, drop, *sizes, *steps, **_constants(q, padding, seed, causal))
    return mixed, statistics


@_attend.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    batch, heads, queries, width = q.shape
    return empty_by_rows(batch, heads, queries, width, q), q.new_empty(batch, heads, queries, 2, dtype=torch.float32)


@torch.library.custom_op("posnet::attend_backward", mutates_args=())
def _gradients(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, index: Tensor, padding: Tensor | None, seed: Tensor | None,
    mixed: Tensor, statistics: Tensor, upstream: Tensor, drop: float, causal: bool, source: int, target: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of queries, keys, values and table."""
    q, k, v, table, upstream = (dense_rows(tensor) for tensor in (q, k, v, table, upstream))
    (batch, heads, queries, width), keys = q.shape, k.size(2)
    delta = (mixed.float() * upstream).sum(dim=3)
    number = blocks(queries, QUERIES[q.dtype])
    # Of a table for all queries, each block of queries has a part of the gradient.
    each = table.size(2) > 1
    parts = table.new_zeros(batch, heads, queries if each else number, table.size(3), dtype=torch.float32)
    pair_step, row_step = parts.stride(1), parts.stride(2)
    steps_of_parts = (pair_step, 0, row_step) if each else (pair_step, row_step, 0)
    to_q, to_k, to_v = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    common: tuple[Any, ...] = q, k, v, table, *_optional(index, padding, seed), upstream, statistics, delta
    steps = *strides(q), *strides(k), *strides(v), *_table_strides(table), *strides(upstream)
    numbers: tuple[Any, ...] = drop, heads, queries, keys, width, source, target, *steps
    constants, pairs = _constants(q, padding, seed, causal), batch * heads
    query_arguments = *common, to_q, parts, *numbers, *steps_of_parts
    launch(attention_programs.query_gradient, (pairs, number), *query_arguments, **constants)
    key_arguments = *common, to_k, to_v, *numbers
    launch(attention_programs.key_gradient, (pairs, blocks(keys, KEYS)), *key_arguments, **constants)
    return to_q, to_k, to_v, parts.sum_to_size(table.shape).to(table.dtype)


@_gradients.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, table: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v, table))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    tensors, ctx.settings = inputs[:7], inputs[7:]
    ctx.save_for_backward(*tensors, *output)


@once_differentiable
def _backward(ctx: Any, upstream: Tensor, to_statistics: Tensor | None) -> tuple[Tensor | None, ...]:
    return *_gradients(*ctx.saved_tensors, upstream, *ctx.settings), *[None] * 7


_attend.register_autograd(_backward, setup_context=_setup)


def _optional(index: Tensor, padding: Tensor | None, seed: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return tensors that programs take: one that they do not read stands for None."""
    padding = index if padding is None else padding.contiguous().view(torch.uint8)
    return index, padding, index if seed is None else seed


def _constants(q: Tensor, padding: Tensor | None, seed: Tensor | None, causal: bool) -> dict[str, Any]:
    width = max(16, 1 << (q.size(3) - 1).bit_length())
    flags = {"CAUSAL": causal, "PADDED": padding is not None, "DROP": seed is not None}
    tile = {"QUERIES": QUERIES[q.dtype], "KEYS": KEYS, "WIDTH": width, "num_stages": STAGES[q.dtype]}
    return flags | tile | {"PRECISION": precision()}


def _table_strides(table: Tensor) -> tuple[int, ...]:
    """Return the strides of (B or 1, H, N or 1, T) but the last, 0 where all share a row."""
    steps = zip(table.shape, strides(table), strict=False)
    return tuple(0 if size == 1 else step for size, step in steps)
