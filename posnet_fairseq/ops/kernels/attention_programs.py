"""The GPU programs of :mod:`posnet_fairseq.ops.kernels.attention_kernels`, in Triton.

A query n stands at the token ⌊γn⌋ = n·source // target; m is a token. Energies and weights exist in tiles of some
queries and tokens only; the backward pass computes them again, as flash attention does (Dao et al., 2022).
"""

import triton
import triton.language as tl

# Energies of hidden pairs, finite as in posnet_fairseq/ops/masking.py.
HIDDEN = tl.constexpr(-1.7014117331926443e38)


@triton.jit
def load_rows(base, row, rows, stride, column, width):
    """Rows of a matrix (rows, width) in memory, 0 outside of it."""
    inside = (row < rows)[:, None] & (column < width)[None, :]
    return tl.load(base + row.to(tl.int64)[:, None] * stride + column[None, :], mask=inside, other=0.0)


@triton.jit
def store_rows(base, tile, row, rows, stride, column, width):
    """Write a tile to rows of a matrix (rows, width) in memory."""
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = base + row.to(tl.int64)[:, None] * stride + column[None, :]
    tl.store(place, tile.to(base.dtype.element_ty), mask=inside)


@triton.jit
def energies(
    products, table, table_n, index, padding, n, m, queries, keys, source, target,
    CAUSAL: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """The energies of pairs with these products q·k; whether they are seen; and their rows of the table."""
    offset = (n.to(tl.int64) * source // target).to(tl.int32) - m
    inside = (n < queries) & (m < keys)
    row = tl.load(index + offset + (keys - 1), mask=inside, other=0)
    energy = products + tl.load(table + n.to(tl.int64) * table_n + row, mask=inside, other=0.0).to(tl.float32)
    seen = inside
    if CAUSAL:
        seen = seen & (offset >= 0)
    if PADDED:
        seen = seen & (tl.load(padding + m, mask=m < keys, other=1) == 0)
    energy = tl.where(seen, energy, HIDDEN)
    return tl.where(m < keys, energy, float("-inf")), seen, row


@triton.jit
def is_kept(seed, pair, n, m, keys, drop):
    """Whether dropout keeps the weights of pairs: the same in every program that asks."""
    return tl.rand(tl.load(seed) + (pair << 32), n * keys + m) >= drop


@triton.jit
def statistics_of(statistics, delta, pair, n, queries):
    """The largest energy of queries, the sum of their exponentials, and the mean gradient of their weights."""
    place = pair * queries + n
    top = tl.load(statistics + place * 2, mask=n < queries, other=0.0)
    total = tl.load(statistics + place * 2 + 1, mask=n < queries, other=1.0)
    return top, total, tl.load(delta + place, mask=n < queries, other=0.0)


@triton.jit
def attend(
    q, k, v, table, index, padding, seed, mixed, statistics, drop,
    heads, queries, keys, width, source, target,
    q_b, q_h, q_n, k_b, k_h, k_m, v_b, v_h, v_m, table_b, table_h, table_n, mixed_b, mixed_h, mixed_n,
    CAUSAL: tl.constexpr, PADDED: tl.constexpr, DROP: tl.constexpr, PRECISION: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Mixed values; and of each query the largest energy and the sum of exponentials, in ``statistics``."""
    pair, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    b, h = pair // heads, pair % heads
    n, column = block * QUERIES + tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    k, v = k + b * k_b + h * k_h, v + b * v_b + h * v_h
    table, padding = table + b * table_b + h * table_h, padding + b * keys
    query = load_rows(q + b * q_b + h * q_h, n, queries, q_n, column, width)
    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    total, sums = tl.zeros((QUERIES,), tl.float32), tl.zeros((QUERIES, WIDTH), tl.float32)
    end = keys
    if CAUSAL and not PADDED:
        end = tl.minimum(keys, (block + 1) * QUERIES)
    for first in range(0, end, KEYS):
        m = first + tl.arange(0, KEYS)
        products = tl.dot(query, tl.trans(load_rows(k, m, keys, k_m, column, width)), input_precision=PRECISION)
        energy, _, _ = energies(
            products, table, table_n, index, padding, n[:, None], m[None, :], queries, keys, source, target,
            CAUSAL, PADDED,
        )  # fmt: skip
        highest = tl.maximum(top, tl.max(energy, axis=1))
        weight, shrink = tl.exp(energy - highest[:, None]), tl.exp(top - highest)
        total, top = total * shrink + tl.sum(weight, axis=1), highest
        if DROP:
            weight = tl.where(is_kept(seed, pair, n[:, None], m[None, :], keys, drop), weight / (1 - drop), 0.0)
        value = load_rows(v, m, keys, v_m, column, width)
        sums = tl.dot(weight.to(value.dtype), value, sums * shrink[:, None], input_precision=PRECISION)
    store_rows(mixed + b * mixed_b + h * mixed_h, sums / total[:, None], n, queries, mixed_n, column, width)
    statistics += (pair * queries + n) * 2
    tl.store(statistics, top, mask=n < queries)
    tl.store(statistics + 1, total, mask=n < queries)


@triton.jit
def query_gradient(
    q, k, v, table, index, padding, seed, upstream, statistics, delta, to_q, to_table, drop,
    heads, queries, keys, width, source, target,
    q_b, q_h, q_n, k_b, k_h, k_m, v_b, v_h, v_m, table_b, table_h, table_n, up_b, up_h, up_n,
    to_table_pair, to_table_block, to_table_n,
    CAUSAL: tl.constexpr, PADDED: tl.constexpr, DROP: tl.constexpr, PRECISION: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The gradients of the queries, (B, H, N, d) side by side, and of the table, added to zeros."""
    pair, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    b, h = pair // heads, pair % heads
    n, column = block * QUERIES + tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    k, v = k + b * k_b + h * k_h, v + b * v_b + h * v_h
    table, padding = table + b * table_b + h * table_h, padding + b * keys
    query = load_rows(q + b * q_b + h * q_h, n, queries, q_n, column, width)
    gradient = load_rows(upstream + b * up_b + h * up_h, n, queries, up_n, column, width)
    top, total, mean = statistics_of(statistics, delta, pair, n, queries)
    to_query = tl.zeros((QUERIES, WIDTH), tl.float32)
    to_row = to_table + pair * to_table_pair + block * to_table_block + n * to_table_n
    end = keys
    if CAUSAL and not PADDED:
        end = tl.minimum(keys, (block + 1) * QUERIES)
    for first in range(0, end, KEYS):
        m = first + tl.arange(0, KEYS)
        key = load_rows(k, m, keys, k_m, column, width)
        products = tl.dot(query, tl.trans(key), input_precision=PRECISION)
        energy, seen, row = energies(
            products, table, table_n, index, padding, n[:, None], m[None, :], queries, keys, source, target,
            CAUSAL, PADDED,
        )  # fmt: skip
        weight = tl.exp(energy - top[:, None]) / total[:, None]
        value = load_rows(v, m, keys, v_m, column, width)
        to_weight = tl.dot(gradient, tl.trans(value), input_precision=PRECISION)
        if DROP:
            kept = is_kept(seed, pair, n[:, None], m[None, :], keys, drop)
            to_weight = tl.where(kept, to_weight / (1 - drop), 0.0)
        to_energy = tl.where(seen, weight * (to_weight - mean[:, None]), 0.0)
        to_query = tl.dot(to_energy.to(key.dtype), key, to_query, input_precision=PRECISION)
        lowest, highest = tl.min(tl.min(row, axis=1), axis=0), tl.max(tl.max(row, axis=1), axis=0)
        if lowest == highest:  # far from the diagonal all pairs share a row, which gets their sum
            tl.atomic_add(to_row + lowest, tl.sum(to_energy, axis=1), mask=n < queries)
        else:
            tl.atomic_add(to_row[:, None] + row, to_energy, mask=seen)
    store_rows(to_q + pair * queries * width, to_query, n, queries, width, column, width)


@triton.jit
def key_gradient(
    q, k, v, table, index, padding, seed, upstream, statistics, delta, to_k, to_v, drop,
    heads, queries, keys, width, source, target,
    q_b, q_h, q_n, k_b, k_h, k_m, v_b, v_h, v_m, table_b, table_h, table_n, up_b, up_h, up_n,
    CAUSAL: tl.constexpr, PADDED: tl.constexpr, DROP: tl.constexpr, PRECISION: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The gradients of the keys and the values, (B, H, M, d) side by side."""
    pair, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    b, h = pair // heads, pair % heads
    m, column = block * KEYS + tl.arange(0, KEYS), tl.arange(0, WIDTH)
    q, upstream = q + b * q_b + h * q_h, upstream + b * up_b + h * up_h
    table, padding = table + b * table_b + h * table_h, padding + b * keys
    key = load_rows(k + b * k_b + h * k_h, m, keys, k_m, column, width)
    value = load_rows(v + b * v_b + h * v_h, m, keys, v_m, column, width)
    to_key, to_value = tl.zeros((KEYS, WIDTH), tl.float32), tl.zeros((KEYS, WIDTH), tl.float32)
    start = 0
    if CAUSAL and not PADDED:
        start = block * KEYS // QUERIES * QUERIES
    for first in range(start, queries, QUERIES):
        n = first + tl.arange(0, QUERIES)
        query = load_rows(q, n, queries, q_n, column, width)
        gradient = load_rows(upstream, n, queries, up_n, column, width)
        top, total, mean = statistics_of(statistics, delta, pair, n, queries)
        products = tl.dot(key, tl.trans(query), input_precision=PRECISION)
        energy, seen, _ = energies(
            products, table, table_n, index, padding, n[None, :], m[:, None], queries, keys, source, target,
            CAUSAL, PADDED,
        )  # fmt: skip
        weight = tl.where((n < queries)[None, :], tl.exp(energy - top[None, :]) / total[None, :], 0.0)
        to_weight = tl.dot(value, tl.trans(gradient), input_precision=PRECISION)
        used = weight
        if DROP:
            kept = is_kept(seed, pair, n[None, :], m[:, None], keys, drop)
            used, to_weight = tl.where(kept, weight / (1 - drop), 0.0), tl.where(kept, to_weight / (1 - drop), 0.0)
        to_value = tl.dot(used.to(gradient.dtype), gradient, to_value, input_precision=PRECISION)
        to_energy = tl.where(seen, weight * (to_weight - mean[None, :]), 0.0)
        to_key = tl.dot(to_energy.to(query.dtype), query, to_key, input_precision=PRECISION)
    store_rows(to_k + pair * keys * width, to_key, m, keys, width, column, width)
    store_rows(to_v + pair * keys * width, to_value, m, keys, width, column, width)
