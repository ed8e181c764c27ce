"""Mixers on grids in float64, straight from their formulas, with a vector or matrix of every pair of tokens.

Tokens are E without a place and then R × C cells, row by row; Δ = x_query - x_key, in rows and columns.
"""

import math

import torch
from torch.autograd import grad

import posnet_fairseq as posnet
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops import bucket_attention, chunks
from support import reference
from support.building import spread
from support.formulas import piecewise, sinusoid

GRID, EXTRA = (3, 5), 2
SIZES = {"embed_dim": 8, "num_heads": 2}  # heads have the 4 features that RoPE needs


def build_mixer(name, grid=GRID, extra_tokens=EXTRA, **options):
    """A mixer on a grid, in float64, with weights away from their starting point."""
    built = posnet.build_mixer(name, **SIZES | {"grid": grid, "extra_tokens": extra_tokens} | options)
    return spread(built.double().eval())


def as_if_large(monkeypatch):
    """Energies in blocks or an image at a time, and made again in the backward pass."""
    monkeypatch.setattr(chunks, "CPU_LIMIT", 1)
    monkeypatch.setattr(bucket_attention, "CPU_BLOCK", 100)
    monkeypatch.setattr(TokenMixer, "should_recompute", lambda *_: True)


def place(mixer, n):
    """Row and column of a token, None of one without a place."""
    settings = mixer.settings
    return None if n < settings.extra_tokens else divmod(n - settings.extra_tokens, settings.grid[1])


def offset(mixer, n, m):
    """(Δr, Δc), None where either token has no place."""
    query, key = place(mixer, n), place(mixer, m)
    return None if query is None or key is None else (query[0] - key[0], query[1] - key[1])


def of_pairs(mixer, function):
    """function(n, m) of all pairs of tokens as a tensor, (N, N) or more."""
    tokens = range(mixer.max_positions)
    return torch.tensor([[function(n, m) for m in tokens] for n in tokens])


def clipped(mixer, limit):
    """The most that offsets of rows and of columns are told apart."""
    return [min(limit, size - 1) for size in mixer.settings.grid]


def product_row(delta, reach, index):
    """(g(Δr) + K)(2K + 1) + g(Δc) + K, each direction with its K; behind all, the row of pairs with an extra token."""
    row, column = (int(limit) for limit in reach)
    if delta is None:
        return (2 * row + 1) * (2 * column + 1)
    return (index(delta[0], reach[0]) + row) * (2 * column + 1) + index(delta[1], reach[1]) + column


def product_clip(mixer, limit):
    """Rows of a table by clipped offsets of both directions, (N, N)."""
    reach = clipped(mixer, limit)
    return of_pairs(mixer, lambda n, m: product_row(offset(mixer, n, m), reach, reference.clip))


def heads(mixer, x):
    """(..., D) to (H, ..., d); what is as wide as a head belongs to all, (1, ..., d)."""
    return torch.stack(x.split(mixer.head_dim, dim=-1))


def content(mixer, x):
    """q and k, (H, N, d) each."""
    return (torch.stack(each) for each in reference.content(mixer, x, x))


def products(q, k):
    """q_n·k_m, (H, N, N)."""
    return torch.einsum("hnd,hmd->hnm", q, k)


def on_keys(q, vectors):
    """q_n·r_nm of vectors (H or 1, N, N, d)."""
    return torch.einsum("hnd,hnmd->hnm", q, vectors.expand(len(q), -1, -1, -1))


def on_queries(k, vectors):
    """k_m·r_nm."""
    return torch.einsum("hmd,hnmd->hnm", k, vectors.expand(len(k), -1, -1, -1))


def weigh(energy, real):
    """Softmax over real keys."""
    return energy.masked_fill(~real, -torch.inf).softmax(dim=-1)


def mix(mixer, x, weights, of_pairs=None):
    """Σ_m α_nm (v_m + of_pairs_nm), gate, output projection."""
    v = heads(mixer, reference.values(mixer, x))
    mixed = weights @ v
    if of_pairs is not None:
        mixed = mixed + torch.einsum("hnm,hnmd->hnd", weights, of_pairs.expand(len(v), -1, -1, -1))
    return project(mixer, x, torch.cat([*mixed], dim=-1))


def project(mixer, x, mixed):
    """Gate and output projection of (N, D)."""
    return mixed * reference.gate(mixer, x) @ mixer.out_proj.weight.T + mixer.out_proj.bias


def attention(mixer, x, real):
    """Without any place."""
    return mix(mixer, x, weigh(products(*content(mixer, x)) / mixer.head_dim**0.5, real))


def irpe_rows(mixer):
    """Rows of the tables that are added for every pair, (N, N, 1 or 2): iRPE (Wu et al., ICCV 2021) Eqs. 18-25."""
    options = mixer.settings.options
    beta, method = options.irpe_beta, options.irpe_method
    index = piecewise if options.irpe_index == "piecewise" else reference.clip
    limit = int(beta)
    row, column = [beta, beta] if options.irpe_index == "piecewise" else clipped(mixer, limit)
    of_rows = 2 * int(row) + 1 + (mixer.settings.extra_tokens > 0)

    def rows(n, m):
        delta = offset(mixer, n, m)
        if method == "product":
            return [product_row(delta, (row, column), index)]
        if method == "cross":
            if delta is None:
                return [2 * int(row) + 1, of_rows + 2 * int(column) + 1]
            return [index(delta[0], row) + int(row), of_rows + index(delta[1], column) + int(column)]
        square = 2 * limit + 1 if delta is None else delta[0] ** 2 + delta[1] ** 2
        if delta is None:
            return [2 * limit + 1]
        return [index(round(math.sqrt(square)) if method == "euclidean" else square, beta) + limit]

    return of_pairs(mixer, lambda n, m: [int(one) for one in rows(n, m)])


def outside(mixer):
    """Pairs of cells of which the term of Axial-DeepLab has none, (N, N): beyond β in any direction."""
    options = mixer.settings.options

    def is_far(n, m):
        delta = offset(mixer, n, m)
        if options.irpe_index != "window" or delta is None:
            return False
        if options.irpe_method in ("product", "cross"):
            return max(map(abs, delta)) > options.irpe_beta
        square = delta[0] ** 2 + delta[1] ** 2
        return (round(math.sqrt(square)) if options.irpe_method == "euclidean" else square) > options.irpe_beta

    return of_pairs(mixer, is_far)


def irpe(mixer, x, real):
    """iRPE (Wu et al., ICCV 2021) Eqs. 13-17."""
    rows, none = irpe_rows(mixer), outside(mixer)
    q, k = content(mixer, x)

    def vectors(table):
        found = heads(mixer, table[rows].sum(dim=2))
        return found.masked_fill(none[..., None], 0)

    energy = products(q, k)
    if mixer.bias is not None:
        energy = energy + mixer.bias[:, rows].sum(dim=-1).masked_fill(none, 0)
    if mixer.on_keys is not None:
        energy = energy + on_keys(q, vectors(mixer.on_keys))
    if mixer.on_queries is not None:
        energy = energy + on_queries(k, vectors(mixer.on_queries))
    of_values = None if mixer.on_values is None else vectors(mixer.on_values)
    return mix(mixer, x, weigh(energy / mixer.head_dim**0.5, real), of_values)


def shaw(mixer, x, real):
    """Shaw et al. (2018) by the product index, one table for all heads: iRPE's supplement, Table 5."""
    rows = product_clip(mixer, mixer.settings.options.clip_distance)
    q, k = content(mixer, x)
    energy = products(q, k) + on_keys(q, heads(mixer, mixer.relative_key[rows]))
    of_values = None if mixer.relative_value is None else heads(mixer, mixer.relative_value[rows])
    return mix(mixer, x, weigh(energy / mixer.head_dim**0.5, real), of_values)


def relative(mixer, x, real):
    """Vectors of offsets in the place of keys."""
    vectors = mixer.relative_key[product_clip(mixer, mixer.settings.options.clip_distance)]
    q = heads(mixer, x @ mixer.query_proj.weight.T + mixer.query_proj.bias)
    return mix(mixer, x, weigh(on_keys(q, heads(mixer, vectors)) / mixer.head_dim**0.5, real))


def huang(mixer, x, real):
    """iRPE Eq. 11."""
    p = heads(mixer, mixer.relative[product_clip(mixer, mixer.settings.options.clip_distance)])
    q, k = content(mixer, x)
    energy = ((q[:, :, None] + p) * (k[:, None] + p)).sum(-1) - (p * p).sum(-1)
    return mix(mixer, x, weigh(energy / mixer.head_dim**0.5, real))


def scalar_bias(mixer, x, real):
    """A number of each head for every pair of offsets: Swin, CoAtNet."""
    options = mixer.settings.options
    if options.scalar_bias_index == "clip":
        rows = product_clip(mixer, options.clip_distance)
    else:
        reach = [options.clip_distance] * 2
        rows = of_pairs(mixer, lambda n, m: product_row(offset(mixer, n, m), reach, piecewise))
    energy = products(*content(mixer, x)) / mixer.head_dim**0.5 + mixer.bias[:, rows]
    return mix(mixer, x, weigh(energy, real))


def transformer_xl(mixer, x, real):
    """iRPE Eq. 10, with the sinusoids of Δr·T + Δc, T clipped offsets in a row, which the heads share."""
    reach = clipped(mixer, mixer.settings.options.clip_distance)
    count = math.prod(2 * limit + 1 for limit in reach)
    table = torch.stack([sinusoid(number - count // 2, mixer.embed_dim) for number in range(count)])
    table = table @ mixer.relative_proj.weight.T
    if mixer.relative_extra is not None:
        table = torch.cat([table, mixer.relative_extra])
    vectors = table[product_clip(mixer, mixer.settings.options.clip_distance)][None]
    q, k = content(mixer, x)
    u, v = (heads(mixer, bias[None]) for bias in (mixer.content_bias, mixer.position_bias))
    energy = products(q + u, k) + on_keys(q + v, vectors)
    return mix(mixer, x, weigh(energy / mixer.head_dim**0.5, real))


def sasa(mixer, x, real):
    """iRPE Eq. 12: a vector of rows and one of columns, of half the width, next to each other."""
    row, column = clipped(mixer, mixer.settings.options.clip_distance)
    of_rows = 2 * row + 1 + (mixer.settings.extra_tokens > 0)

    def rows(n, m):
        delta = offset(mixer, n, m)
        if delta is None:
            return [of_rows - 1, len(mixer.relative_key) - 1]
        return [reference.clip(delta[0], row) + row, of_rows + reference.clip(delta[1], column) + column]

    vectors = mixer.relative_key[of_pairs(mixer, rows)].flatten(2)
    q, k = content(mixer, x)
    return mix(mixer, x, weigh((products(q, k) + on_keys(q, vectors[None])) / mixer.head_dim**0.5, real))


def gpsa(mixer, x, real):
    """ConViT (d'Ascoli et al., 2021) Eqs. 5-8 with r = (‖Δ‖², Δr, Δc), and 1 where either token has no place."""

    def features(n, m):
        delta = offset(mixer, n, m)
        return [0, 0, 0, 1] if delta is None else [delta[0] ** 2 + delta[1] ** 2, *delta, 0]

    w = mixer.position_weight
    of_positions = torch.einsum("hf,nmf->hnm", w, of_pairs(mixer, features)[..., : w.size(1)].double())
    of_tokens = products(*content(mixer, x)) / mixer.head_dim**0.5
    gates = mixer.gate.sigmoid()[:, None, None]
    return mix(mixer, x, (1 - gates) * weigh(of_tokens, real) + gates * weigh(of_positions, real))


def rope(mixer, x, real):
    """Feature i and i + d/2 turn by the row for i < d/4, and by the column for the others."""
    quarter = mixer.head_dim // 4

    def turned(vectors):
        rows = []
        for n in range(mixer.max_positions):
            at = [number for number in place(mixer, n) or (0, 0) for _ in range(quarter)]
            angles = [at[i] * 10000 ** (-2 * (i % quarter) / (2 * quarter)) for i in range(2 * quarter)]
            sin, cos = (torch.tensor([f(a) for a in angles], dtype=torch.float64) for f in (math.sin, math.cos))
            a, b = vectors[:, n].chunk(2, dim=-1)
            rows.append(torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1))
        return torch.stack(rows, dim=1)

    energy = products(*map(turned, content(mixer, x))) / mixer.head_dim**0.5
    return mix(mixer, x, weigh(energy, real))


def lightconv(mixer, x, real):
    """A weight for every pair of offsets within K in both directions, and one of all pairs with an extra token."""
    options = mixer.settings.options
    energy = mixer.energies[0].weight[:, product_clip(mixer, options.clip_distance)]
    if not options.lightconv_global_context:
        real = real & ~of_pairs(mixer, lambda n, m: max(map(abs, offset(mixer, n, m) or [0])) > options.clip_distance)
    return mix(mixer, x, weigh(energy, real))


def rposnet(mixer, x, real):
    """PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 9 with the vector of a token's number."""
    positions = mixer.own_positions.for_mixers(len(x))
    (energy,) = mixer.energies
    q = heads(mixer, positions @ energy.query_proj.weight.T + energy.query_proj.bias)
    vectors = heads(mixer, energy.relative[product_clip(mixer, mixer.settings.options.clip_distance)])
    return mix(mixer, x, weigh(on_keys(q, vectors) / mixer.head_dim**0.5, real))


def matrix_rows(mixer):
    """Of Translution: pairs of offsets, then extra token to extra token, extra token to cell, cell to extra token."""
    limit = mixer.settings.options.translution_clip or mixer.max_positions
    reach = clipped(mixer, limit)

    def row(n, m):
        delta = offset(mixer, n, m)
        kind = 0 if delta is not None else 2 if place(mixer, n) is not None else 1 if place(mixer, m) is not None else 0
        return product_row(delta, reach, reference.clip) + kind

    return of_pairs(mixer, row)


def per_pair(mixer, table, tokens, is_query):
    """Tokens (N, C), each by the matrices of its pairs, by heads: (H, N, N, c)."""
    tokens = tokens[:, None] if is_query else tokens[None]
    count = mixer.max_positions
    if table is not None:
        tokens = torch.einsum("nmc,nmce->nme", tokens.expand(count, count, -1), table[matrix_rows(mixer)])
    return torch.stack(tokens.expand(count, count, -1).chunk(mixer.num_heads, dim=-1))


def translution(mixer, x, real):
    """Translution (Fan et al., 2025) Eq. 1: matrices of every offset."""
    matrices = mixer.matrices
    q = x if matrices.queries is not None else x @ mixer.query_proj.weight.T + mixer.query_proj.bias
    k = x if matrices.keys is not None else x @ mixer.key_proj.weight.T + mixer.key_proj.bias
    v = reference.values(mixer, x) if hasattr(mixer.gating.value_proj, "weight") else x
    q, k = per_pair(mixer, matrices.queries, q, True), per_pair(mixer, matrices.keys, k, False)
    weights = weigh((q * k).sum(-1) / mixer.head_dim**0.5, real)
    v = per_pair(mixer, matrices.values, v, False)
    return project(mixer, x, torch.cat([*torch.einsum("hnm,hnmd->hnd", weights, v)], dim=-1))


def alpha_translution(mixer, x, real):
    """Translution Eq. 2: a vector of every pair, widened and added to attention."""
    matrices, energy = mixer.matrices, products(*content(mixer, x)) / mixer.head_dim**0.5
    if mixer.narrow_query is not None:
        q = per_pair(mixer, matrices.queries, x @ mixer.narrow_query.weight.T, True)
        k = per_pair(mixer, matrices.keys, x @ mixer.narrow_key.weight.T, False)
        energy = (energy + (q * k).sum(-1) / mixer.head_dim**0.5) / 2
    weights = weigh(energy, real)
    mixed = torch.cat([*(weights @ heads(mixer, reference.values(mixer, x)))], dim=-1)
    if mixer.narrow_value is not None:
        v = per_pair(mixer, matrices.values, x @ mixer.narrow_value.weight.T, False)
        narrow = torch.cat([*torch.einsum("hnm,hnmd->hnd", weights, v)], dim=-1)
        mixed = (mixed + narrow @ mixer.widen.weight.T) / 2
    return project(mixer, x, mixed)


FORMULAS = {
    formula.__name__: formula
    for formula in (
        *(attention, irpe, shaw, relative, huang, scalar_bias, transformer_xl, sasa, gpsa, rope, lightconv, rposnet),
        *(translution, alpha_translution),
    )
}


def masks(mixer):
    """Padding masks of a batch: none, behind, and anywhere, where a cell is not there."""
    tokens = torch.arange(mixer.max_positions)
    return torch.stack([tokens < 0, tokens >= max(1, mixer.max_positions - 4), (tokens + 1) % 3 == 0])


def assert_equal_to_formula(mixer):
    """Forward and every gradient of a batch, with and without padding."""
    padding = masks(mixer)
    x = torch.randn(*padding.shape, mixer.embed_dim, dtype=torch.float64, requires_grad=True)
    cotangent = torch.randn_like(x).masked_fill(padding[..., None], 0)
    formula = FORMULAS[mixer.name]
    outputs = (
        mixer(x, padding_mask=padding),
        torch.stack([formula(mixer, *one) for one in zip(x, ~padding, strict=True)]),
    )
    inputs = {"tokens": x, **dict(mixer.named_parameters())}
    torch.testing.assert_close(*(output[~padding] for output in outputs), rtol=1e-9, atol=1e-9)
    losses = ((output * cotangent).sum() for output in outputs)
    gradients = (grad(loss, [*inputs.values()], allow_unused=True, materialize_grads=True) for loss in losses)
    torch.testing.assert_close(*(dict(zip(inputs, each, strict=True)) for each in gradients), rtol=1e-8, atol=1e-8)
