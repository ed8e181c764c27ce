"""The GPU programs of :mod:`posnet_fairseq.ops.kernels.band_kernels`, in Triton.

Names as there: h is a head, b a sentence, n a query that stands at the token ⌊γn⌋ = n·source // target, m a token, R
the clip distance. A program computes a tile of its result; all sums are taken in float32.
"""

import triton
import triton.language as tl

from posnet_fairseq.ops.kernels.tile_programs import load_rows, store_rows


@triton.jit
def offsets(n, m, queries, keys, source, target, R: tl.constexpr, TAILS: tl.constexpr):
    """The offsets ⌊γn⌋ - m of pairs, correct up to ±R and clipped somewhere beyond, and which pairs are mixed."""
    # Further than R behind the last token, a query is further than R behind all of them.
    at = tl.minimum(n.to(tl.int64) * source // target, keys + R).to(tl.int32)
    offset = at - m
    mixed = (n < queries) & (m < keys)
    if not TAILS:
        mixed = mixed & (offset >= -R) & (offset <= R)
    return offset, mixed


@triton.jit
def weight_tile(weights, n, m, queries, keys, source, target, R: tl.constexpr, TAILS: tl.constexpr):
    """The weights of pairs, from a head's weights (N, 2R + 1); 0 where a pair is not mixed."""
    offset, mixed = offsets(n, m, queries, keys, source, target, R, TAILS)
    row = tl.minimum(tl.maximum(offset, -R), R) + R
    return tl.load(weights + n.to(tl.int64) * (2 * R + 1) + row, mask=mixed, other=0.0)


@triton.jit
def key_blocks(block, queries, keys, source, target, R: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    """The blocks of tokens, first and one past the last, that have every token up to R from a block of queries."""
    number = tl.cdiv(keys, KEYS)
    first_query = (block * QUERIES).to(tl.int64)
    last_query = tl.minimum(first_query + QUERIES, queries) - 1
    first = tl.maximum(first_query * source // target - R, 0) // KEYS
    last = (last_query * source // target + R + KEYS) // KEYS
    return tl.minimum(first, number).to(tl.int32), tl.minimum(last, number).to(tl.int32)


@triton.jit
def query_blocks(block, queries, source, target, R: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    """The blocks of queries, first and one past the last, that have every query up to R from a block of tokens."""
    first_key = (block * KEYS).to(tl.int64)
    # The first query at the token x or after it is ⌈x·target / source⌉.
    first = (tl.maximum(first_key - R, 0) * target + source - 1) // source
    end = ((first_key + KEYS + R) * target + source - 1) // source
    first = tl.minimum(first, queries) // QUERIES
    last = (tl.minimum(end, queries) + QUERIES - 1) // QUERIES
    return first.to(tl.int32), last.to(tl.int32)


@triton.jit
def sum_blocks(
    x, weights, sums, heads, rows, width, stride_b, stride_h, stride_n,
    COLUMN: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """sums[b, h, i] = Σ_n x[b, h, n] of a block i, each weighted by a column of the head's weights, if it is given."""
    pair, block, feature = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    b, h = pair // heads, pair % heads
    row = block * BLOCK + tl.arange(0, BLOCK)
    column = feature * WIDTH + tl.arange(0, WIDTH)
    tile = load_rows(x + b * stride_b + h * stride_h, row, rows, stride_n, column, width).to(tl.float32)
    if COLUMN >= 0:
        place = (h * rows + row) * COLUMNS + COLUMN
        tile *= tl.load(weights + place, mask=row < rows, other=0.0)[:, None]
    place = (pair * tl.num_programs(1) + block) * width + column
    tl.store(sums + place, tl.sum(tile, axis=0), mask=column < width)


@triton.jit
def mix(
    weights, value, before, after, mixed, heads, queries, keys, width, source, target,
    value_b, value_h, value_m, mixed_b, mixed_h, mixed_n,
    R: tl.constexpr, TAILS: tl.constexpr, PRECISION: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """mixed[b, h, n] = Σ_m weight[n, m] · value[b, h, m]."""
    pair, block, feature = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    b, h = pair // heads, pair % heads
    n = block * QUERIES + tl.arange(0, QUERIES)
    column = feature * WIDTH + tl.arange(0, WIDTH)
    weights += h * queries * (2 * R + 1)
    value += b * value_b + h * value_h
    first, last = key_blocks(block, queries, keys, source, target, R, QUERIES, KEYS)
    total = tl.zeros((QUERIES, WIDTH), tl.float32)
    for key_block in range(first, last):
        m = key_block * KEYS + tl.arange(0, KEYS)
        weight = weight_tile(weights, n[:, None], m[None, :], queries, keys, source, target, R, TAILS)
        tokens = load_rows(value, m, keys, value_m, column, width)
        total = tl.dot(weight.to(tokens.dtype), tokens, total, input_precision=PRECISION)
    if TAILS:
        sums = pair * (tl.cdiv(keys, KEYS) + 1)
        for side in tl.static_range(2):
            far = (before + (sums + first) * width) if side == 0 else (after + (sums + last) * width)
            row = 2 * R if side == 0 else 0
            weight = tl.load(weights + n.to(tl.int64) * (2 * R + 1) + row, mask=n < queries, other=0.0)
            total += weight[:, None] * tl.load(far + column, mask=column < width, other=0.0)[None, :]
    store_rows(mixed + b * mixed_b + h * mixed_h, total, n, queries, mixed_n, column, width)


@triton.jit
def mix_transposed(
    weights, upstream, before, after, to_value, heads, queries, keys, width, source, target,
    upstream_b, upstream_h, upstream_n, to_value_b, to_value_h, to_value_m,
    R: tl.constexpr, TAILS: tl.constexpr, PRECISION: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """to_value[b, h, m] = Σ_n weight[n, m] · upstream[b, h, n]."""
    pair, block, feature = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    b, h = pair // heads, pair % heads
    m = block * KEYS + tl.arange(0, KEYS)
    column = feature * WIDTH + tl.arange(0, WIDTH)
    weights += h * queries * (2 * R + 1)
    upstream += b * upstream_b + h * upstream_h
    first, last = query_blocks(block, queries, source, target, R, QUERIES, KEYS)
    total = tl.zeros((KEYS, WIDTH), tl.float32)
    for query_block in range(first, last):
        n = query_block * QUERIES + tl.arange(0, QUERIES)
        weight = weight_tile(weights, n[None, :], m[:, None], queries, keys, source, target, R, TAILS)
        gradients = load_rows(upstream, n, queries, upstream_n, column, width)
        total = tl.dot(weight.to(gradients.dtype), gradients, total, input_precision=PRECISION)
    if TAILS:
        sums = pair * (tl.cdiv(queries, QUERIES) + 1)
        total += tl.load(before + (sums + first) * width + column, mask=column < width, other=0.0)[None, :]
        total += tl.load(after + (sums + last) * width + column, mask=column < width, other=0.0)[None, :]
    store_rows(to_value + b * to_value_b + h * to_value_h, total, m, keys, to_value_m, column, width)


@triton.jit
def weight_gradient(
    upstream, value, before, after, to_weights, batch, heads, queries, keys, width, source, target,
    upstream_b, upstream_h, upstream_n, value_b, value_h, value_m,
    R: tl.constexpr, TAILS: tl.constexpr, PRECISION: tl.constexpr, SENTENCES: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """to_weights[i, h, n, row] = Σ upstream[b, h, n] · value[b, h, m] over a group i of sentences b and all m of a row.

    Rows that no token has are left as they are.
    """
    group, h, block = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64), tl.program_id(2)
    n = block * QUERIES + tl.arange(0, QUERIES)
    inside = n < queries
    upstream += h * upstream_h
    value += h * value_h
    to_weights += ((group * heads + h) * queries + n.to(tl.int64)) * (2 * R + 1)
    first, last = key_blocks(block, queries, keys, source, target, R, QUERIES, KEYS)
    start = group * SENTENCES
    end = tl.minimum(start + SENTENCES, batch)
    left, right = tl.zeros((QUERIES,), tl.float32), tl.zeros((QUERIES,), tl.float32)
    for key_block in range(first, last):
        m = key_block * KEYS + tl.arange(0, KEYS)
        offset, seen = offsets(n[:, None], m[None, :], queries, keys, source, target, R, TAILS)
        products = tl.zeros((QUERIES, KEYS), tl.float32)
        for b in range(start, end):
            for feature in range(0, width, WIDTH):
                column = feature + tl.arange(0, WIDTH)
                gradients = load_rows(upstream + b * upstream_b, n, queries, upstream_n, column, width)
                tokens = load_rows(value + b * value_b, m, keys, value_m, column, width)
                products = tl.dot(gradients, tl.trans(tokens), products, input_precision=PRECISION)
        if TAILS:
            left += tl.sum(tl.where(seen & (offset >= R), products, 0.0), axis=1)
            right += tl.sum(tl.where(seen & (offset <= -R), products, 0.0), axis=1)
            seen = seen & (offset > -R) & (offset < R)
        tl.store(to_weights[:, None] + offset + R, products, mask=seen)
    if TAILS:
        for b in range(start, end):
            sums = (b * heads + h) * (tl.cdiv(keys, KEYS) + 1)
            for feature in range(0, width, WIDTH):
                column = feature + tl.arange(0, WIDTH)
                gradients = load_rows(upstream + b * upstream_b, n, queries, upstream_n, column, width).to(tl.float32)
                far = tl.load(before + (sums + first) * width + column, mask=column < width, other=0.0)
                left += tl.sum(gradients * far[None, :], axis=1)
                far = tl.load(after + (sums + last) * width + column, mask=column < width, other=0.0)
                right += tl.sum(gradients * far[None, :], axis=1)
        tl.store(to_weights + 2 * R, left, mask=inside)
        tl.store(to_weights, right, mask=inside)
