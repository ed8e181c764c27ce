"""Attention in which tokens meet through a matrix of their offset: Translution (Fan et al., 2025) Eq. 1 and App. C.

A pair (n, m) projects its tokens with the matrices of its offset δ = n - m. No vector or matrix of a pair is ever made:
all pairs of one offset are the rows of three plain products. The backward pass makes these products again, so what is
kept for it are the tokens, (B, N, D), and the weights, (B, H, N, N).

Offsets of K or more to one side share a matrix. They are one triangle of pairs, which meet as in ordinary attention,
so the work grows with K, and with the length as that of attention.
"""

from dataclasses import dataclass

import torch

from posnet_fairseq.ops.derivatives import twice_differentiable


@dataclass(frozen=True)
class Group:
    """Pairs whose offset has the same matrix.

    Attributes:
        row: of the matrix in its table.
        queries, keys: slices of the N tokens that they are pairs of.
        side: 0 if they are one diagonal, token i of `queries` with token i of `keys`; 1 if they are all pairs on and
            below that diagonal, to the left of the query, -1 if on and above it.
    """

    row: int
    queries: slice
    keys: slice
    side: int = 0


def groups(length, clip_distance, causal):
    """How the pairs of a sentence share matrices.

    Args:
        length: N.
        clip_distance: K.
        causal: only offsets δ ≥ 0; row δ of a table is theirs. Else row K + δ is that of δ, from -K to K.

    Returns:
        A list of :class:`Group`, which together have every pair that is not hidden, once.
    """
    sides = (1,) if causal else (1, -1)
    found = []
    for side in sides:
        for distance in range(side < 0, min(length, clip_distance + 1)):
            behind, before = slice(distance, length), slice(0, length - distance)
            queries, keys = (behind, before) if side > 0 else (before, behind)
            row = distance if causal else clip_distance + side * distance
            found.append(Group(row, queries, keys, side if distance == clip_distance else 0))
    return found


def energies(q, query_table, k, key_table, num_heads, clip_distance, causal):
    """q_nm · k_nm for all pairs that are not hidden, 0 for the others.

    Args:
        q, k: (N, B, C), tokens.
        query_table, key_table: (K + 1 or 2K + 1, C, C), see :func:`groups`: q_nm = q_n query_table[δ], likewise k_nm.
            None: all offsets have the identity.
        num_heads: H.
        clip_distance: K.
        causal: whether queries see only what stands before them and themselves.

    Returns:
        (B, H, N, N).
    """
    return _with_one_dtype(_Energies, (q, query_table, k, key_table), num_heads, clip_distance, causal)


def mixture(weights, v, table, clip_distance, causal):
    """Σ_m weights[n, m] · v_m table[δ], (N, B, C).

    Args:
        weights: (B, H, N, N), 0 for hidden pairs.
        v: (N, B, C), tokens.
        table: (K + 1 or 2K + 1, C, C).
        clip_distance, causal: as for :func:`energies`.
    """
    return _with_one_dtype(_Mixture, (weights, v, table), clip_distance, causal)


def energies_of_step(q, query_table, k, key_table, num_heads, clip_distance):
    """:func:`energies` of one query, the last of M tokens.

    Args:
        q: (1, B, C).
        k: (M, B, C).
        query_table, key_table, num_heads, clip_distance: as for :func:`energies` that are causal.

    Returns:
        (B, H, 1, M).
    """
    near, far = _near_and_far(k, clip_distance)
    queries = _by_distance(q, query_table, len(near))
    near = _split(queries * _by_distance(near, key_table, len(near)), num_heads).sum(dim=-1).permute(1, 2, 0)
    if not len(far):
        return near.flip(-1).unsqueeze(2)
    query = _split(_project(q, query_table, clip_distance), num_heads).squeeze(0)
    if key_table is None:
        energy = torch.einsum("bhc,mbhc->bhm", query, _split(far, num_heads))
    else:  # the query through the matrix of the keys, rather than all keys at every step
        query = torch.einsum("bhc,ehc->bhe", query, key_table[clip_distance].unflatten(1, (num_heads, -1)))
        energy = torch.einsum("bhe,mbe->bhm", query, far)
    return torch.cat([energy, near.flip(-1)], dim=-1).unsqueeze(2)


def mixture_of_step(weights, v, table, clip_distance):
    """:func:`mixture` for one query, the last of M tokens: (1, B, C) of weights (B, H, 1, M) and v (M, B, C)."""
    weights, num_heads = weights.squeeze(2), weights.size(1)
    values, far = _near_and_far(v, clip_distance)
    values = _split(_by_distance(values, table, len(values)), num_heads)
    mixed = torch.einsum("bhm,mbhc->bhc", weights[..., -len(values) :].flip(-1), values)
    if len(far):
        sums = torch.einsum("bhm,mbe->bhe", weights[..., : len(far)], far)
        mixed = mixed + torch.einsum("bhe,ehc->bhc", sums, table[clip_distance].unflatten(1, (num_heads, -1)))
    return mixed.flatten(1).unsqueeze(0)


def _with_one_dtype(function, tensors, *settings):
    kind = tensors[0].device.type
    if not torch.amp.is_autocast_available(kind):
        return function.apply(*tensors, *settings)
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        tensors = [tensor if tensor is None else tensor.to(dtype) for tensor in tensors]
    with torch.autocast(kind, enabled=False):
        return function.apply(*tensors, *settings)


def _energies(q, query_table, k, key_table, num_heads, clip_distance, causal):
    length, batch, _ = q.shape
    energy = q.new_zeros(batch, num_heads, length, length)
    for group in groups(length, clip_distance, causal):
        queries = _project(q[group.queries], query_table, group.row)
        keys = _project(k[group.keys], key_table, group.row)
        if group.side:
            block = _heads(queries, num_heads) @ _heads(keys, num_heads).mT
            energy[:, :, group.queries, group.keys] += _triangle(block, group.side)
        else:
            _diagonal(energy, group).copy_(_split(queries * keys, num_heads).sum(dim=-1))
    return energy


class _Energies(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, query_table, k, key_table, *settings):
        ctx.save_for_backward(q, query_table, k, key_table)
        ctx.settings = settings
        return _energies(q, query_table, k, key_table, *settings)

    @staticmethod
    @twice_differentiable(_energies)
    def backward(ctx, to_energy):
        q, query_table, k, key_table = ctx.saved_tensors
        num_heads, clip_distance, causal = ctx.settings
        to_q, to_k = _Gradient(q, query_table), _Gradient(k, key_table)
        for group in groups(len(q), clip_distance, causal):
            queries = _project(q[group.queries], query_table, group.row)
            keys = _project(k[group.keys], key_table, group.row)
            if group.side:
                block = _triangle(to_energy[:, :, group.queries, group.keys].clone(), group.side)
                to_queries = _merge(block @ _heads(keys, num_heads))
                to_keys = _merge(block.mT @ _heads(queries, num_heads))
            else:
                upstream = _diagonal(to_energy, group).unsqueeze(-1)
                to_queries = (_split(keys, num_heads) * upstream).flatten(2)
                to_keys = (_split(queries, num_heads) * upstream).flatten(2)
            to_q.add(group.queries, group.row, to_queries)
            to_k.add(group.keys, group.row, to_keys)
        return *to_q.both(), *to_k.both(), None, None, None


def _mixture(weights, v, table, clip_distance, causal):
    num_heads = weights.size(1)
    mixed = _empty_sum(v)
    for group in groups(len(v), clip_distance, causal):
        values = _project(v[group.keys], table, group.row)
        if group.side:
            block = _triangle(weights[:, :, group.queries, group.keys].clone(), group.side)
            mixed[group.queries] += _merge(block @ _heads(values, num_heads))
        else:
            into = _split(mixed[group.queries], num_heads)
            into.addcmul_(_split(values, num_heads), _diagonal(weights, group).unsqueeze(-1))
    return mixed.to(v.dtype)


class _Mixture(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weights, v, table, *settings):
        ctx.save_for_backward(weights, v, table)
        ctx.settings = settings
        return _mixture(weights, v, table, *settings)

    @staticmethod
    @twice_differentiable(_mixture)
    def backward(ctx, to_mixed):
        weights, v, table = ctx.saved_tensors
        clip_distance, causal = ctx.settings
        num_heads = weights.size(1)
        to_mixed, to_weights, to_v = to_mixed.contiguous(), torch.zeros_like(weights), _Gradient(v, table)
        for group in groups(len(v), clip_distance, causal):
            values = _project(v[group.keys], table, group.row)
            upstream = to_mixed[group.queries]
            if group.side:
                block = _triangle(weights[:, :, group.queries, group.keys].clone(), group.side)
                to_block = _heads(upstream, num_heads) @ _heads(values, num_heads).mT
                to_weights[:, :, group.queries, group.keys] += _triangle(to_block, group.side)
                to_values = _merge(block.mT @ _heads(upstream, num_heads))
            else:
                _diagonal(to_weights, group).copy_(_split(values * upstream, num_heads).sum(dim=-1))
                to_values = (_split(upstream, num_heads) * _diagonal(weights, group).unsqueeze(-1)).flatten(2)
            to_v.add(group.keys, group.row, to_values)
        return to_weights, *to_v.both(), None, None


class _Gradient:
    """What reaches tokens (N, B, C) and a table of matrices, or no table, through products of one group at a time."""

    def __init__(self, tokens, table):
        self.tokens, self.table = tokens, table
        self.to_tokens = _empty_sum(tokens)
        self.to_table = None if table is None else torch.zeros_like(table)

    def add(self, where, row, upstream):
        """Add the gradient of tokens[where] table[row], which is `upstream`, (n, B, C)."""
        into = self.to_tokens[where]
        if self.table is None:
            into += upstream
            return
        upstream = upstream.flatten(0, 1)
        torch.mm(self.tokens[where].flatten(0, 1).mT, upstream, out=self.to_table[row])
        if into.dtype == upstream.dtype:
            into.flatten(0, 1).addmm_(upstream, self.table[row].mT)
        else:
            into += (upstream @ self.table[row].mT).view(into.shape)

    def both(self):
        """For the tokens, and for the table."""
        return self.to_tokens.to(self.tokens.dtype), self.to_table


def _empty_sum(tokens):
    """Zeros (N, B, C) for the sum over many offsets: in float32 at least, and contiguous."""
    return torch.zeros(tokens.shape, dtype=torch.promote_types(tokens.dtype, torch.float32), device=tokens.device)


def _project(tokens, table, row):
    """(n, B, C) through one matrix of a table, or as they are."""
    return tokens if table is None else tokens @ table[row]


def _near_and_far(tokens, clip_distance):
    """Those less than K before the last one, (min(K, M), B, C), the last first; and the others in their order."""
    first = max(0, len(tokens) - clip_distance)
    return tokens[first:].flip(0), tokens[:first]


def _by_distance(tokens, table, count):
    """Token i, or the one there is, through matrix i of the first so many: (n, B, C)."""
    return tokens if table is None else tokens @ table[:count]


def _split(x, num_heads):
    """(n, B, C) to (n, B, H, c)."""
    return x.unflatten(2, (num_heads, -1))


def _heads(x, num_heads):
    """(n, B, C) to (B, H, n, c)."""
    return _split(x, num_heads).permute(1, 2, 0, 3)


def _merge(x):
    """(B, H, n, c) to (n, B, C)."""
    return x.permute(2, 0, 1, 3).flatten(2)


def _diagonal(pairs, group):
    """The pairs of one offset of (B, H, N, N), as a view (n, B, H)."""
    return pairs[:, :, group.queries, group.keys].diagonal(dim1=2, dim2=3).permute(2, 0, 1)


def _triangle(block, side):
    """(B, H, n, n) without the pairs of the other side, in place."""
    return block.tril_() if side > 0 else block.triu_()
