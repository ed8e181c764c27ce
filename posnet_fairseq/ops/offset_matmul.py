"""Attention in which tokens meet through a matrix of their offset: Translution (Fan et al., 2025) Eq. 1 and App. C.

A pair (n, m) projects its tokens with the matrices of its offset δ = n - m. No vector or matrix of a single pair is
computed: all pairs of one offset are the rows of three matrix products. The backward pass computes these products
again, so only the tokens, (B, N, D), and the weights, (B, H, N, N), are kept for it.

Offsets of K or more to one side share a matrix. Their pairs form a triangle and meet as in ordinary attention, so the
work grows with K, and with the length as that of attention. On a grid the same holds in both directions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from posnet_fairseq.ops.derivatives import once_differentiable
from posnet_fairseq.ops.dtypes import float_type
from posnet_fairseq.ops.offset_groups import Group, groups


def energies(
    q: Tensor,
    query_table: Tensor | None,
    k: Tensor,
    key_table: Tensor | None,
    num_heads: int,
    reaches: tuple[int, ...],
    causal: bool,
    shape: tuple[int, ...] = (),
) -> Tensor:
    """Return q_nm · k_nm of all pairs that are not hidden, 0 for the others: (B, H, N, N).

    Here q_nm = q_n query_table[δ] and k_nm = k_m key_table[δ].

    Args:
        q, k: (N, B, C), tokens.
        query_table, key_table: (K + 1 or 2K + 1, C, C), on a grid more, rows as in
            :func:`posnet_fairseq.ops.offset_groups.groups`; None stands for the identity at all offsets.
        num_heads: H.
        reaches, causal, shape: as there.
    """
    settings = num_heads, reaches, causal, shape
    return _with_one_dtype(_Energies, q.device.type, (q, query_table, k, key_table), *settings)


def mixture(
    weights: Tensor,
    v: Tensor,
    table: Tensor,
    reaches: tuple[int, ...],
    causal: bool,
    shape: tuple[int, ...] = (),
) -> Tensor:
    """Return Σ_m weights[n, m] · v_m table[δ], (N, B, C).

    Args:
        weights: (B, H, N, N), 0 for hidden pairs.
        v: (N, B, C), tokens.
        table, reaches, causal, shape: as for :func:`energies`.
    """
    return _with_one_dtype(_Mixture, v.device.type, (weights, v, table), reaches, causal, shape)


def energies_of_step(
    q: Tensor,
    query_table: Tensor | None,
    k: Tensor,
    key_table: Tensor | None,
    num_heads: int,
    clip_distance: int,
) -> Tensor:
    """Return the causal :func:`energies` of one query ``q``, (1, B, C), the last of M tokens: (B, H, 1, M)."""
    near, far = _near_and_far(k, clip_distance)
    by_distance = slice(len(near))
    products = _project(q, query_table, by_distance) * _project(near, key_table, by_distance)
    near = _split_features(products, num_heads).sum(dim=-1).permute(1, 2, 0)
    if not len(far):
        return near.flip(-1).unsqueeze(2)
    query = _split_features(_project(q, query_table, clip_distance), num_heads).squeeze(0)
    if key_table is None:
        energy = torch.einsum("bhc,mbhc->bhm", query, _split_features(far, num_heads))
    else:  # the query through the matrix of the keys, rather than all keys at every step
        query = torch.einsum("bhc,ehc->bhe", query, key_table[clip_distance].unflatten(1, (num_heads, -1)))
        energy = torch.einsum("bhe,mbe->bhm", query, far)
    return torch.cat([energy, near.flip(-1)], dim=-1).unsqueeze(2)


def mixture_of_step(weights: Tensor, v: Tensor, table: Tensor, clip_distance: int) -> Tensor:
    """Return the causal :func:`mixture`, (1, B, C), of one query with weights (B, H, 1, M), the last of M tokens."""
    weights, num_heads = weights.squeeze(2), weights.size(1)
    values, far = _near_and_far(v, clip_distance)
    values = _split_features(_project(values, table, slice(len(values))), num_heads)
    mixed = torch.einsum("bhm,mbhc->bhc", weights[..., -len(values) :].flip(-1), values)
    if len(far):
        sums = torch.einsum("bhm,mbe->bhe", weights[..., : len(far)], far)
        mixed = mixed + torch.einsum("bhe,ehc->bhc", sums, table[clip_distance].unflatten(1, (num_heads, -1)))
    return mixed.flatten(1).unsqueeze(0)


def _with_one_dtype(
    function: type[torch.autograd.Function], kind: str, tensors: Sequence[Tensor | None], *settings: Any
) -> Tensor:
    """Apply ``function`` without autocast, to tensors in the data type of autocast on devices of this kind."""
    if not torch.amp.is_autocast_available(kind):
        return function.apply(*tensors, *settings)
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        tensors = [tensor if tensor is None else tensor.to(dtype) for tensor in tensors]
    with torch.autocast(kind, enabled=False):
        return function.apply(*tensors, *settings)


class _Energies(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, query_table: Tensor | None, k: Tensor, key_table: Tensor | None, *settings: Any
    ) -> Tensor:
        ctx.save_for_backward(q, query_table, k, key_table)
        ctx.settings = num_heads, *which = settings
        length, batch, _ = q.shape
        energy = q.new_zeros(batch, num_heads, length, length)
        for group in groups(length, *which):
            queries = _project(group.queries(q), query_table, group.row)
            keys = _project(group.keys(k), key_table, group.row)
            pairs = group.pairs(energy)
            if group.is_diagonal:
                pairs.copy_(_split_features(queries * keys, num_heads).sum(dim=-1))
            else:
                block = group.per_head(queries, num_heads) @ group.per_head(keys, num_heads).mT
                pairs += group.only_its_pairs(block.view(pairs.shape))
        return energy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_energy: Tensor) -> tuple[Tensor | None, ...]:
        q, query_table, k, key_table = ctx.saved_tensors
        num_heads, *which = ctx.settings
        to_q, to_k = _Gradient(q, query_table), _Gradient(k, key_table)
        for group in groups(len(q), *which):
            # Read twice: of a grid these are copies.
            of_q, of_k = group.queries(q).contiguous(), group.keys(k).contiguous()
            queries, keys = _project(of_q, query_table, group.row), _project(of_k, key_table, group.row)
            if group.is_diagonal:
                upstream = group.pairs(to_energy).unsqueeze(-1)
                to_queries = (_split_features(keys, num_heads) * upstream).flatten(-2)
                to_keys = (_split_features(queries, num_heads) * upstream).flatten(-2)
            else:
                block = _block(group, to_energy)
                to_queries = group.merged(block @ group.per_head(keys, num_heads), queries)
                to_keys = group.merged(block.mT @ group.per_head(queries, num_heads), keys)
            to_q.add(group.queries, of_q, group.row, to_queries)
            to_k.add(group.keys, of_k, group.row, to_keys)
        return *to_q.both(), *to_k.both(), *([None] * len(ctx.settings))


class _Mixture(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, v: Tensor, table: Tensor, *which: Any) -> Tensor:
        ctx.save_for_backward(weights, v, table)
        ctx.which = which
        num_heads, mixed = weights.size(1), _empty_sum(v)
        for group in groups(len(v), *which):
            values, into = _project(group.keys(v), table, group.row), group.queries(mixed)
            if group.is_diagonal:
                of_pairs = group.pairs(weights).unsqueeze(-1)
                _split_features(into, num_heads).addcmul_(_split_features(values, num_heads), of_pairs)
            else:
                into += group.merged(_block(group, weights) @ group.per_head(values, num_heads), into)
        return mixed.to(v.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_mixed: Tensor) -> tuple[Tensor | None, ...]:
        weights, v, table = ctx.saved_tensors
        num_heads = weights.size(1)
        to_mixed, to_weights, to_v = to_mixed.contiguous(), torch.zeros_like(weights), _Gradient(v, table)
        for group in groups(len(v), *ctx.which):
            of_v, upstream, to_pairs = group.keys(v).contiguous(), group.queries(to_mixed), group.pairs(to_weights)
            values = _project(of_v, table, group.row)
            if group.is_diagonal:
                to_pairs.copy_(_split_features(values * upstream, num_heads).sum(dim=-1))
                to_values = (_split_features(upstream, num_heads) * group.pairs(weights).unsqueeze(-1)).flatten(-2)
            else:
                of_queries = group.per_head(upstream, num_heads)
                to_block = of_queries @ group.per_head(values, num_heads).mT
                to_pairs += group.only_its_pairs(to_block.view(to_pairs.shape))
                to_values = group.merged(_block(group, weights).mT @ of_queries, values)
            to_v.add(group.keys, of_v, group.row, to_values)
        return to_weights, *to_v.both(), *([None] * len(ctx.which))


def _block(group: Group, pairs: Tensor) -> Tensor:
    """Return a copy of the pairs of a group in ``pairs``, (B, H, N, N), for products: (B, H, n, m) and so on."""
    block = group.only_its_pairs(group.pairs(pairs).clone(memory_format=torch.contiguous_format))
    return block.flatten(4, 5).flatten(2, 3) if block.dim() == 6 else block


class _Gradient:
    """Gradients of tokens (N, B, C) and of a table of matrices, or of no table, summed over groups of pairs."""

    def __init__(self, tokens: Tensor, table: Tensor | None) -> None:
        self.tokens, self.table = tokens, table
        self.to_tokens = _empty_sum(tokens)
        self.to_table = None if table is None else torch.zeros_like(table)

    def add(self, of: Callable[[Tensor], Tensor], tokens: Tensor, row: int, upstream: Tensor) -> None:
        """Add ``upstream``, (..., B, C), the gradient of ``tokens``, which are ``of`` all, times table[row]."""
        into = of(self.to_tokens)
        if self.table is None or self.to_table is None:
            into += upstream
            return
        rows = upstream.flatten(0, -2)
        torch.mm(tokens.flatten(0, -2).mT, rows, out=self.to_table[row])
        if into.dtype == rows.dtype and into.is_contiguous():
            into.flatten(0, -2).addmm_(rows, self.table[row].mT)
        else:
            into += (rows @ self.table[row].mT).view(into.shape)

    def both(self) -> tuple[Tensor, Tensor | None]:
        """Return the gradients of the tokens and of the table."""
        return self.to_tokens.to(self.tokens.dtype), self.to_table


def _empty_sum(tokens: Tensor) -> Tensor:
    """Return contiguous zeros (N, B, C) for a sum over many offsets, in float32 or wider."""
    return torch.zeros(tokens.shape, dtype=float_type(tokens), device=tokens.device)


def _near_and_far(tokens: Tensor, clip_distance: int) -> tuple[Tensor, Tensor]:
    """Return the last min(K, M) tokens, the last one first, and the other tokens in their order."""
    first = max(0, len(tokens) - clip_distance)
    return tokens[first:].flip(0), tokens[:first]


def _project(tokens: Tensor, table: Tensor | None, row: int | slice) -> Tensor:
    """Return tokens (..., B, C) times a matrix of a table, or each times its own of a slice; unchanged without one."""
    return tokens if table is None else tokens @ table[row]


def _split_features(x: Tensor, num_heads: int) -> Tensor:
    """Return ``x``, (..., B, C), as (..., B, H, c)."""
    return x.unflatten(-1, (num_heads, -1))
