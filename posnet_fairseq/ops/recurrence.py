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

from posnet_fairseq.ops.decayed_products import decayed_products
from posnet_fairseq.ops.dtypes import in_float, without_autocast

# Tokens of a chunk. Sentences of up to twice this length are computed as one chunk, without a state.
CHUNK = 64


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

    def shares_tokens(self, other: "Terms") -> bool:
        """Return whether two recurrences differ in decays only."""
        return self.q is other.q and self.k is other.k and self.v is other.v and self.write is other.write is None


def recur(forward: Terms, backward: Terms | None = None) -> Tensor:
    """Return y, (B, H, N, d_v), of a recurrence from the first token to the last.

    With `backward`, that of a second one from the last token to the first is added. It leaves out what token n itself
    writes, so that each token counts once: y_n reads a_n ⊙ S_{n+1} there.
    """
    one_chunk = forward.v.size(2) <= 2 * CHUNK
    with without_autocast(forward.v):
        if backward is not None and one_chunk and forward.shares_tokens(backward):
            return coefficients(forward, backward).to(forward.v.dtype) @ forward.v
        recur_once = _in_one_chunk if one_chunk else _in_chunks
        mixed = recur_once(forward, False)
        return mixed if backward is None else mixed + recur_once(backward, True)


def coefficients(forward: Terms, backward: Terms | None = None) -> Tensor:
    """Return the matrix by which :func:`recur` multiplies the values, (B, H, N, N), in float32 or wider.

    With `backward`, terms must share their tokens (:meth:`Terms.shares_tokens`).
    """
    q, k, _, log_decay, write = forward
    if backward is None:
        sums = _sums(log_decay)
        matrix = _products(q, k, sums)
        if write is None:
            return matrix
        erased = _products(k, k, sums, own=False) * write
        return torch.linalg.solve_triangular(erased, matrix, upper=False, left=False, unitriangular=True) * write.mT
    if log_decay is None or backward.log_decay is None:
        return in_float(q @ k.mT)
    past, future = _sums(log_decay), _sums(backward.log_decay, backward=True)
    assert past is not None
    assert future is not None
    if log_decay.size(-1) > 1:
        return decayed_products(q, k, past, future, own=True)
    follows = _follows(past, first=1)
    return (q @ k.mT) * torch.where(follows, future - future.mT, past - past.mT).exp()


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
    with without_autocast(state):
        if terms.write is not None:
            v = (v - k @ state) * terms.write.to(state.dtype)
        state = state.addcmul_(k.mT, v) if in_place else torch.addcmul(state, k.mT, v)
        return state, (q @ state).to(terms.v.dtype)


def _in_one_chunk(terms: Terms, backward: bool) -> Tensor:
    """Return y of one recurrence; `backward` reads no token's own writing."""
    q, k, v, log_decay, write = terms
    sums = _sums(log_decay, backward)
    if write is not None:
        erased = _products(k, k, sums, own=False, backward=backward) * write
        v = torch.linalg.solve_triangular(erased, in_float(v) * write, upper=backward, unitriangular=True)
    mixed = _products(q, k, sums, own=not backward, backward=backward).to(v.dtype) @ v
    return mixed.to(terms.v.dtype)


def _in_chunks(terms: Terms, backward: bool) -> Tensor:
    """Return what :func:`_in_one_chunk` does, of many tokens."""
    if backward:
        terms = Terms(*(None if term is None else term.flip(2) for term in terms))  # type: ignore[arg-type]
    length, dtype = terms.v.size(2), terms.v.dtype
    padding = 0, 0, 0, -length % CHUNK
    q, k, v, log_decay, write = (x if x is None else F.pad(x, padding).unflatten(2, (-1, CHUNK)) for x in terms)
    assert q is not None
    assert k is not None
    assert v is not None
    sums, end = _sums(log_decay), None
    matrix = _products(q, k, sums, own=not backward)
    reads, writes, erases = in_float(q), in_float(k), None
    if sums is not None:
        end = sums[..., -1:, :]
        reads, writes = reads * sums.exp(), writes * (end - sums).exp()
    if write is not None:
        # UT transform, Gated DeltaNet (Yang et al., 2025) Section 3.2: values are U - W S.
        of_state = in_float(k) if sums is None else k * sums.exp()
        erased, both = _products(k, k, sums, own=False) * write, torch.cat([in_float(v), of_state], dim=-1) * write
        solved = torch.linalg.solve_triangular(erased, both, upper=False, unitriangular=True)
        v, w = solved.split([v.size(-1), k.size(-1)], dim=-1)
        reads, erases = reads - matrix @ w, writes.mT @ w
    added = writes.mT @ v.to(writes.dtype)
    states = _states(added, None if end is None else end.exp().mT, erases)
    mixed = (matrix.to(v.dtype) @ v + reads @ states).flatten(2, 3)[:, :, :length].to(dtype)
    return mixed.flip(2) if backward else mixed


def _states(added: Tensor, decays: Tensor | None, erases: Tensor | None) -> Tensor:
    """Return the states in front of each chunk, (B, H, T, d_k, d_v).

    Args:
        added: what each chunk adds, (B, H, T, d_k, d_v).
        decays: by what it multiplies what was there, (B, H, T, d_k or 1, 1), or None.
        erases: the matrix whose product with what was there it takes away, (B, H, T, d_k, d_k), or None.
    """
    chunks = added.unbind(2)[
        :-1
    ]  # whose gradients are stacked once; those of indices would each be as large as `added`
    decay_of = None if decays is None else decays.unbind(2)
    erases_of = None if erases is None else erases.unbind(2)
    state = torch.zeros_like(added[:, :, 0])
    states = [state]
    for number, chunk in enumerate(chunks):
        kept = state if decay_of is None else state * decay_of[number]
        if erases_of is not None:
            kept = kept - erases_of[number] @ state
        state = kept + chunk
        states.append(state)
    return torch.stack(states, dim=2)


def _sums(log_decay: Tensor | None, backward: bool = False) -> Tensor | None:
    """Return the sums of log a up to each token, `backward` from the last one on, (..., N, d_k or 1)."""
    if log_decay is None:
        return None
    return log_decay.flip(-2).cumsum(dim=-2).flip(-2) if backward else log_decay.cumsum(dim=-2)


def _products(q: Tensor, k: Tensor, sums: Tensor | None, own: bool = True, backward: bool = False) -> Tensor:
    """Return (q_n ⊙ exp(s_n - s_m)) · k_m for m < n, `backward` for m > n, and with `own` for m = n: (..., N, N)."""
    if sums is None:
        products = in_float(q @ k.mT)
        return products.triu(int(not own)) if backward else products.tril(-int(not own))
    if sums.size(-1) > 1:
        return decayed_products(q, k, None if backward else sums, sums if backward else None, own)
    hidden = _follows(sums, int(own))
    differences = (sums - sums.mT).masked_fill(hidden.mT if backward else hidden, -torch.inf)
    return (q @ k.mT) * differences.exp()


def _follows(sums: Tensor, first: int) -> Tensor:
    """Return a mask, (N, N), True where m ≥ n + `first`."""
    length = sums.size(-2)
    return torch.ones(length, length, dtype=torch.bool, device=sums.device).triu(first)
