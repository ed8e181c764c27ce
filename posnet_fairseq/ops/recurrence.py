"""Linear recurrences of matrices, computed in chunks of tokens.

S_n = a_n ⊙ S_{n-1} + k_n v_nᵀ and y_n = S_nᵀ q_n, so that y_n = Σ_{m ≤ n} [(q_n ⊙ Π_{l = m+1 ... n} a_l) · k_m] v_m.
Inside a chunk of C tokens the coefficients in brackets are a masked C × C matrix; the state S, (d_k, d_v), is carried
from chunk to chunk. Time and memory grow linearly with the number of tokens: O(N·C·d + N·d_k·d_v) and
O(N·(C + d) + N/C·d_k·d_v).

Decays are given as log a ≤ 0 and summed in float32 or wider. Only differences that are not positive are
exponentiated, so nothing overflows however small the decays are: RetNet (Sun et al., 2023) Eq. 7; GLA (Yang et al.,
2024) Section 4; Mamba-2 (Dao and Gu, 2024) Section 6.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from posnet_fairseq.ops.dtypes import in_float

# Tokens of a chunk. Sentences of at most twice as many are one chunk, which has no state.
CHUNK = 64
# Tokens of the smallest blocks, whose products with decays of single features are made one by one.
BLOCK = 8


class Terms(NamedTuple):
    """What tokens contribute to a recurrence, and read from it.

    Attributes:
        q: (B, H or 1, N, d_k).
        k: (B, H or 1, N, d_k), zeros at padding.
        v: (B, H, N, d_v).
        log_decay: log a, ≤ 0 and 0 at padding, in float32 or wider: (B, H, N, 1), a number of each head, or
            (B, H, N, d_k), one of each feature; None if nothing decays.
        write: β of the delta rule, (B, H, N, 1): S_n = a_n (I - β_n k_n k_nᵀ) S_{n-1} + β_n k_n v_nᵀ. None without it.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor | None = None
    write: Tensor | None = None

    def reversed(self) -> "Terms":
        """Return the terms of the tokens from the last to the first."""
        return Terms(*(None if term is None else term.flip(2) for term in self))  # type: ignore[arg-type]

    def shares_tokens(self, other: "Terms") -> bool:
        """Return whether two recurrences differ in decays only."""
        return self.q is other.q and self.k is other.k and self.v is other.v and self.write is other.write is None


def recur(forward: Terms, backward: Terms | None = None) -> Tensor:
    """Return y, (B, H, N, d_v), of a recurrence from the first token to the last.

    With `backward`, that of a second one from the last token to the first is added. It leaves out what token n itself
    writes, so that each token counts once: y_n reads a_n ⊙ S_{n+1} there.
    """
    if backward is None:
        return _recur(forward, strict=False)
    if forward.v.size(2) <= 2 * CHUNK and forward.shares_tokens(backward):
        return coefficients(forward, backward).to(forward.v.dtype) @ forward.v
    return _recur(forward, strict=False) + _recur(backward.reversed(), strict=True).flip(2)


def coefficients(forward: Terms, backward: Terms | None = None) -> Tensor:
    """Return the matrix by which :func:`recur` multiplies the values, (B, H, N, N), in float32 or wider.

    With `backward`, terms must share their tokens (:meth:`Terms.shares_tokens`).
    """
    q, k, _, log_decay, write = forward
    sums = _sums(log_decay)
    if backward is None:
        matrix = _products(q, k, sums, strict=False)
        if write is None:
            return matrix
        erased = _products(k, k, sums, strict=True) * write
        return torch.linalg.solve_triangular(erased, matrix, upper=False, left=False, unitriangular=True) * write.mT
    if log_decay is None or backward.log_decay is None:
        return in_float(q @ k.mT)
    if log_decay.size(-1) > 1:
        reverse = _products(q.flip(2), k.flip(2), _sums(backward.log_decay.flip(2)), strict=True)
        return _products(q, k, sums, strict=False) + reverse.flip(2, 3)
    reverse_sums = _sums(backward.log_decay.flip(2)).flip(2)
    future = _future(sums, first=1)
    return (q @ k.mT) * torch.where(future, reverse_sums - reverse_sums.mT, sums - sums.mT).exp()


def advance(state: Tensor, terms: Terms, in_place: bool) -> tuple[Tensor, Tensor]:
    """Return the state after one token more, (B, H, d_k, d_v), and y of that token, (B, H, 1, d_v).

    Args:
        state: S, in float32 or wider; overwritten if `in_place`.
        terms: of one token.
        in_place: whether nobody needs the old state.
    """
    q, k, v = (x.to(state.dtype) for x in terms[:3])
    if terms.log_decay is not None:
        decay = terms.log_decay.to(state.dtype).exp().mT
        state = state.mul_(decay) if in_place else state * decay
    if terms.write is not None:
        v = (v - k @ state) * terms.write.to(state.dtype)
    state = state.addcmul_(k.mT, v) if in_place else torch.addcmul(state, k.mT, v)
    return state, (q @ state).to(terms.v.dtype)


def _recur(terms: Terms, strict: bool) -> Tensor:
    """Return y of one recurrence; `strict`: without what token n itself writes."""
    length, dtype = terms.v.size(2), terms.v.dtype
    one_chunk = length <= 2 * CHUNK
    if not one_chunk:
        terms = _in_chunks(terms)
    q, k, v, log_decay, write = terms
    sums = _sums(log_decay)
    matrix = _products(q, k, sums, strict)
    reads = q if sums is None else q * sums.exp()
    erases = None
    if write is not None:
        # UT transform, Gated DeltaNet (Yang et al., 2025) Section 3.2: V' = U - W S.
        erased = _products(k, k, sums, strict=True) * write
        of_state = k if sums is None else k * sums.exp()
        sides = in_float(v) if one_chunk else torch.cat([in_float(v), of_state.to(erased.dtype)], dim=-1)
        solved = torch.linalg.solve_triangular(erased, sides * write, upper=False, unitriangular=True)
        v, erases = solved[..., : v.size(-1)], solved[..., v.size(-1) :]
    mixed = matrix.to(v.dtype) @ v
    if one_chunk:
        return mixed.to(dtype)
    writes = k if sums is None else k * (sums[..., -1:, :] - sums).exp()
    writes = in_float(writes).mT
    added = writes @ v.to(writes.dtype)
    decays = None if sums is None else sums[..., -1:, :].exp().mT
    if erases is not None:
        reads, erases = reads - matrix @ erases, writes @ erases
    states = _states(added, decays, erases)
    return (mixed + reads.to(states.dtype) @ states).flatten(2, 3)[:, :, :length].to(dtype)


def _states(added: Tensor, decays: Tensor | None, erases: Tensor | None) -> Tensor:
    """Return the states in front of each chunk, (B, H, T, d_k, d_v).

    Args:
        added: what each chunk adds, (B, H, T, d_k, d_v).
        decays: by what it multiplies what was there, (B or 1, H, T, d_k or 1, 1), or None.
        erases: the matrix by which it then takes away from it, (B, H, T, d_k, d_k), or None.
    """
    state = torch.zeros_like(added[:, :, 0])
    states = [state]
    for chunk in range(added.size(2) - 1):
        old = state
        if decays is not None:
            state = state * decays[:, :, chunk]
        if erases is not None:
            state = state - erases[:, :, chunk] @ old
        state = state + added[:, :, chunk]
        states.append(state)
    return torch.stack(states, dim=2)


def _in_chunks(terms: Terms) -> Terms:
    """Return terms with tokens (T, C) in the place of N, behind which there is padding."""
    missing = -terms.v.size(2) % CHUNK
    padded = (None if x is None else F.pad(x, (0, 0, 0, missing)).unflatten(2, (-1, CHUNK)) for x in terms)
    return Terms(*padded)  # type: ignore[arg-type]


def _sums(log_decay: Tensor | None) -> Tensor | None:
    """Return the sums of log a up to each token, (..., N, d_k or 1)."""
    return None if log_decay is None else log_decay.cumsum(dim=-2)


def _products(q: Tensor, k: Tensor, sums: Tensor | None, strict: bool) -> Tensor:
    """Return (q_n ⊙ exp(sums_n - sums_m)) · k_m for m ≤ n, or m < n if `strict`, else 0: (..., N, N)."""
    if sums is None:
        return in_float(q @ k.mT).tril(-int(strict))
    if sums.size(-1) > 1:
        return _products_by_feature(q, k, sums, strict)
    differences = (sums - sums.mT).masked_fill(_future(sums, first=1 - strict), -torch.inf)
    return (q @ k.mT) * differences.exp()


def _future(sums: Tensor, first: int) -> Tensor:
    """Return a mask, (N, N), True where m ≥ n + `first`."""
    length = sums.size(-2)
    return torch.ones(length, length, dtype=torch.bool, device=sums.device).triu(first)


def _products_by_feature(q: Tensor, k: Tensor, sums: Tensor, strict: bool) -> Tensor:
    """Return :func:`_products` with decays of every feature.

    Blocks of tokens are joined in pairs. The products of queries in the second with keys in the first are one product
    of matrices, with decays counted from the end of the first block.
    """
    length, size = q.size(-2), BLOCK
    width = max(BLOCK, 1 << (length - 1).bit_length())
    q, k = (F.pad(x, (0, 0, 0, width - length)) for x in (q, k))
    sums = torch.cat([sums, sums[..., -1:, :].expand(*sums.shape[:-2], width - length, -1)], dim=-2)

    def in_blocks(x: Tensor) -> Tensor:
        return x.unflatten(-2, (-1, size))

    queries, keys, ends = in_blocks(q), in_blocks(k), in_blocks(sums)
    future = _future(ends, first=1 - strict)[..., None]
    decays = (ends.unsqueeze(-2) - ends.unsqueeze(-3)).masked_fill(future, -torch.inf).exp()
    blocks = ((decays * keys.unsqueeze(-3)) @ queries.to(decays.dtype).unsqueeze(-1)).squeeze(-1)
    while size < width:
        (_, queries), (keys, _), (old, new) = (in_blocks(x).unflatten(-3, (-1, 2)).unbind(-3) for x in (q, k, sums))
        end = old[..., -1:, :]
        below = (queries * (new - end).exp()) @ (keys * (end - old).exp()).mT
        first, second = blocks.unflatten(-3, (-1, 2)).unbind(-3)
        above = torch.cat([first, torch.zeros_like(first)], dim=-1)
        blocks = torch.cat([above, torch.cat([below, second], dim=-1)], dim=-2)
        size *= 2
    return blocks.squeeze(-3)[..., :length, :length]
