"""Attention in which tokens meet through a matrix of their offset: Translution (Fan et al., 2025) Eq. 1 and App. C.

A pair (n, m) projects its tokens with the matrices of its offset δ = n - m. No vector or matrix of a single pair is
computed: all pairs of one offset are the rows of three matrix products. The backward pass computes these products
again, so only the tokens, (B, N, D), and the weights, (B, H, N, N), are kept for it.

Offsets of K or more to one side share a matrix. Their pairs form a triangle and meet as in ordinary attention, so the
work grows with K, and with the length as that of attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posnet_fairseq.ops.derivatives import once_differentiable


def energies(
    q: Tensor,
    query_table: Tensor | None,
    k: Tensor,
    key_table: Tensor | None,
    num_heads: int,
    clip_distance: int,
    causal: bool,
) -> Tensor:
    """Return q_nm · k_nm of all pairs that are not hidden, 0 for the others: (B, H, N, N).

    Here q_nm = q_n query_table[δ] and k_nm = k_m key_table[δ].

    Args:
        q, k: (N, B, C), tokens.
        query_table, key_table: (K + 1 or 2K + 1, C, C), rows as in :func:`_groups`; None stands for the identity at all
            offsets.
        num_heads: H.
        clip_distance: K.
        causal: whether queries see only themselves and the tokens before them.
    """
    return _with_one_dtype(_Energies, q.device.type, (q, query_table, k, key_table), num_heads, clip_distance, causal)


def mixture(weights: Tensor, v: Tensor, table: Tensor, clip_distance: int, causal: bool) -> Tensor:
    """Return Σ_m weights[n, m] · v_m table[δ], (N, B, C).

    Args:
        weights: (B, H, N, N), 0 for hidden pairs.
        v: (N, B, C), tokens.
        table, clip_distance, causal: as for :func:`energies`.
    """
    return _with_one_dtype(_Mixture, v.device.type, (weights, v, table), clip_distance, causal)


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
    queries = _by_distance(q, query_table, len(near))
    near = _split_features(queries * _by_distance(near, key_table, len(near)), num_heads).sum(dim=-1).permute(1, 2, 0)
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
    values = _split_features(_by_distance(values, table, len(values)), num_heads)
    mixed = torch.einsum("bhm,mbhc->bhc", weights[..., -len(values) :].flip(-1), values)
    if len(far):
        sums = torch.einsum("bhm,mbe->bhe", weights[..., : len(far)], far)
        mixed = mixed + torch.einsum("bhe,ehc->bhc", sums, table[clip_distance].unflatten(1, (num_heads, -1)))
    return mixed.flatten(1).unsqueeze(0)


def _with_one_dtype(
    function: type[torch.autograd.Function], kind: str, tensors: Sequence[Tensor | None], *settings: int
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
        ctx.settings = num_heads, clip_distance, causal = settings
        length, batch, _ = q.shape
        energy = q.new_zeros(batch, num_heads, length, length)
        for group in _groups(length, clip_distance, causal):
            queries = _project(q[group.queries], query_table, group.row)
            keys = _project(k[group.keys], key_table, group.row)
            if group.side:
                block = _per_head(queries, num_heads) @ _per_head(keys, num_heads).mT
                energy[:, :, group.queries, group.keys] += _triangle(block, group.side)
            else:
                _diagonal(energy, group).copy_(_split_features(queries * keys, num_heads).sum(dim=-1))
        return energy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_energy: Tensor) -> tuple[Tensor | None, ...]:
        q, query_table, k, key_table = ctx.saved_tensors
        num_heads, clip_distance, causal = ctx.settings
        to_q, to_k = _Gradient(q, query_table), _Gradient(k, key_table)
        for group in _groups(len(q), clip_distance, causal):
            queries = _project(q[group.queries], query_table, group.row)
            keys = _project(k[group.keys], key_table, group.row)
            if group.side:
                block = _triangle(to_energy[:, :, group.queries, group.keys].clone(), group.side)
                to_queries = _merge_features(block @ _per_head(keys, num_heads))
                to_keys = _merge_features(block.mT @ _per_head(queries, num_heads))
            else:
                upstream = _diagonal(to_energy, group).unsqueeze(-1)
                to_queries = (_split_features(keys, num_heads) * upstream).flatten(2)
                to_keys = (_split_features(queries, num_heads) * upstream).flatten(2)
            to_q.add(group.queries, group.row, to_queries)
            to_k.add(group.keys, group.row, to_keys)
        return *to_q.both(), *to_k.both(), None, None, None


class _Mixture(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, v: Tensor, table: Tensor, *settings: Any) -> Tensor:
        ctx.save_for_backward(weights, v, table)
        ctx.settings = clip_distance, causal = settings
        num_heads, mixed = weights.size(1), _empty_sum(v)
        for group in _groups(len(v), clip_distance, causal):
            values = _project(v[group.keys], table, group.row)
            if group.side:
                block = _triangle(weights[:, :, group.queries, group.keys].clone(), group.side)
                mixed[group.queries] += _merge_features(block @ _per_head(values, num_heads))
            else:
                into = _split_features(mixed[group.queries], num_heads)
                into.addcmul_(_split_features(values, num_heads), _diagonal(weights, group).unsqueeze(-1))
        return mixed.to(v.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_mixed: Tensor) -> tuple[Tensor | None, ...]:
        weights, v, table = ctx.saved_tensors
        clip_distance, causal = ctx.settings
        num_heads = weights.size(1)
        to_mixed, to_weights, to_v = to_mixed.contiguous(), torch.zeros_like(weights), _Gradient(v, table)
        for group in _groups(len(v), clip_distance, causal):
            values = _project(v[group.keys], table, group.row)
            upstream = to_mixed[group.queries]
            if group.side:
                block = _triangle(weights[:, :, group.queries, group.keys].clone(), group.side)
                to_block = _per_head(upstream, num_heads) @ _per_head(values, num_heads).mT
                to_weights[:, :, group.queries, group.keys] += _triangle(to_block, group.side)
                to_values = _merge_features(block.mT @ _per_head(upstream, num_heads))
            else:
                _diagonal(to_weights, group).copy_(_split_features(values * upstream, num_heads).sum(dim=-1))
                to_values = (_split_features(upstream, num_heads) * _diagonal(weights, group).unsqueeze(-1)).flatten(2)
            to_v.add(group.keys, group.row, to_values)
        return to_weights, *to_v.both(), None, None


class _Gradient:
    """Gradients of tokens (N, B, C) and of a table of matrices, or of no table, summed over groups of pairs."""

    def __init__(self, tokens: Tensor, table: Tensor | None) -> None:
        self.tokens, self.table = tokens, table
        self.to_tokens = _empty_sum(tokens)
        self.to_table = None if table is None else torch.zeros_like(table)

    def add(self, where: slice, row: int, upstream: Tensor) -> None:
        """Add ``upstream``, (n, B, C), the gradient of tokens[where] table[row]."""
        into = self.to_tokens[where]
        if self.table is None or self.to_table is None:
            into += upstream
            return
        upstream = upstream.flatten(0, 1)
        torch.mm(self.tokens[where].flatten(0, 1).mT, upstream, out=self.to_table[row])
        if into.dtype == upstream.dtype:
            into.flatten(0, 1).addmm_(upstream, self.table[row].mT)
        else:
            into += (upstream @ self.table[row].mT).view(into.shape)

    def both(self) -> tuple[Tensor, Tensor | None]:
        """Return the gradients of the tokens and of the table."""
        return self.to_tokens.to(self.tokens.dtype), self.to_table


def _empty_sum(tokens: Tensor) -> Tensor:
    """Return contiguous zeros (N, B, C) for a sum over many offsets, in float32 or wider."""
    return torch.zeros(tokens.shape, dtype=torch.promote_types(tokens.dtype, torch.float32), device=tokens.device)


def _near_and_far(tokens: Tensor, clip_distance: int) -> tuple[Tensor, Tensor]:
    """Return the last min(K, M) tokens, the last one first, and the other tokens in their order."""
    first = max(0, len(tokens) - clip_distance)
    return tokens[first:].flip(0), tokens[:first]


def _by_distance(tokens: Tensor, table: Tensor | None, count: int) -> Tensor:
    """Return token i, or the only token, times matrix i of a table, for i < ``count``: (count, B, C)."""
    return tokens if table is None else tokens @ table[:count]


@dataclass(frozen=True)
class _Group:
    """Pairs of tokens whose offsets share a matrix.

    Attributes:
        row: of the matrix in its table.
        queries, keys: slices of the N tokens.
        side: 0 for one diagonal, token i of ``queries`` with token i of ``keys``; 1 for all pairs on and below that
            diagonal, where keys are to the left of the query; -1 for those on and above it.
    """

    row: int
    queries: slice
    keys: slice
    side: int = 0


def _groups(length: int, clip_distance: int, causal: bool) -> list[_Group]:
    """Return groups that together hold every pair that is not hidden, once, of N tokens.

    If `causal`, only offsets δ ≥ 0 are mixed. Offset δ then has row δ of a table, otherwise row K + δ.
    """
    sides = (1,) if causal else (1, -1)
    found = []
    for side in sides:
        for distance in range(side < 0, min(length, clip_distance + 1)):
            behind, before = slice(distance, length), slice(0, length - distance)
            queries, keys = (behind, before) if side > 0 else (before, behind)
            row = distance if causal else clip_distance + side * distance
            found.append(_Group(row, queries, keys, side if distance == clip_distance else 0))
    return found


def _project(tokens: Tensor, table: Tensor | None, row: int) -> Tensor:
    """Return tokens (n, B, C) times one matrix of a table; unchanged without a table."""
    return tokens if table is None else tokens @ table[row]


def _split_features(x: Tensor, num_heads: int) -> Tensor:
    """Return ``x``, (n, B, C), as (n, B, H, c)."""
    return x.unflatten(2, (num_heads, -1))


def _per_head(x: Tensor, num_heads: int) -> Tensor:
    """Return ``x``, (n, B, C), as (B, H, n, c)."""
    return _split_features(x, num_heads).permute(1, 2, 0, 3)


def _merge_features(x: Tensor) -> Tensor:
    """Return ``x``, (B, H, n, c), as (n, B, C)."""
    return x.permute(2, 0, 1, 3).flatten(2)


def _diagonal(pairs: Tensor, group: _Group) -> Tensor:
    """Return the pairs of one offset, (n, B, H), a view of ``pairs``, (B, H, N, N)."""
    return pairs[:, :, group.queries, group.keys].diagonal(dim1=2, dim2=3).permute(2, 0, 1)


def _triangle(block: Tensor, side: int) -> Tensor:
    """Set the pairs of ``block``, (B, H, n, n), on the other side to zero in place, and return it."""
    return block.tril_() if side > 0 else block.triu_()
