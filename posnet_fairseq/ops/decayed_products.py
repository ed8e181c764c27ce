"""Products of queries and keys whose every feature decays with a rate of its own.

With cumulative sums s of log a, the product of n and m is (q_n ⊙ exp(s_n - s_m)) · k_m. A product of matrices needs the
two factors apart, exp(s_n - r) and exp(r - s_m), and neither may overflow: r has to lie between n and m. So blocks of
tokens are joined in pairs, and the products of tokens in one block with those in the other take r from where they meet:
GLA (Yang et al., 2024) Section 4.3, with a level for every power of two.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from posnet_fairseq.ops.derivatives import once_differentiable
from posnet_fairseq.ops.dtypes import without_autocast


def decayed_products(q: Tensor, k: Tensor, past: Tensor | None, future: Tensor | None, own: bool) -> Tensor:
    """Return the products of tokens n and m, (..., N, N), in the type of the sums.

    Args:
        q, k: (..., N, d_k).
        past: sums of log a from the first token to each, (..., N, d_k), for m < n; None if these have no products.
        future: sums from the last token to each, for m > n; None if these have no products.
        own: whether a token has a product with itself.
    """
    with without_autocast(q):
        return _Products.apply(q, k, past, future, own)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, past: Tensor | None, future: Tensor | None, own: bool) -> Tensor:
        ctx.own, ctx.length = own, q.size(-2)
        q, k = _padded(q), _padded(k)
        past, future = (None if sums is None else _padded(sums) for sums in (past, future))
        ctx.save_for_backward(q, k, past, future)
        (like,) = {sums.dtype for sums in (past, future) if sums is not None}
        matrix = torch.zeros(*q.shape[:-1], q.size(-2), dtype=like, device=q.device)
        if own:
            matrix.diagonal(dim1=-2, dim2=-1).copy_((q * k).sum(dim=-1))
        for level in _levels(q.size(-2), past, future):
            queries, keys = level.queries(q) * level.of_queries, level.keys(k) * level.of_keys
            level.block(matrix).copy_(queries @ keys.mT)
        return matrix[..., : ctx.length, : ctx.length]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_matrix: Tensor) -> tuple[Tensor | None, ...]:
        q, k, past, future = ctx.saved_tensors
        length, width = ctx.length, q.size(-2)
        to_matrix = F.pad(to_matrix, (0, width - length, 0, width - length)).contiguous()
        diagonal = to_matrix.diagonal(dim1=-2, dim2=-1)[..., None] * ctx.own
        to_q, to_k = diagonal * k, diagonal * q
        to_sums: list[Tensor | None] = []
        for sums in (past, future):
            if sums is None:
                to_sums.append(None)
                continue
            own_q, own_k = torch.zeros_like(to_q), torch.zeros_like(to_k)
            for level in _levels(width, *((sums, None) if sums is past else (None, sums))):
                queries, keys = level.queries(q) * level.of_queries, level.keys(k) * level.of_keys
                block = level.block(to_matrix)
                level.queries(own_q).addcmul_(block @ keys, level.of_queries)
                level.keys(own_k).addcmul_(block.mT @ queries, level.of_keys)
            # A sum stands in exp(s_n - r) with every product of its query, and in exp(r - s_m) with those of its key.
            to_sums.append((q * own_q - k * own_k)[..., :length, :])
            to_q, to_k = to_q + own_q, to_k + own_k
        return to_q[..., :length, :].to(q.dtype), to_k[..., :length, :].to(k.dtype), *to_sums, None


class _Level(NamedTuple):
    """Products between the two blocks of each pair.

    Attributes:
        size: tokens of a block.
        row: which block of a pair the queries are in, 0 or 1; the keys are in the other one.
        of_queries: exp(s_n - r), (..., T, size, d_k) with T pairs.
        of_keys: exp(r - s_m).
    """

    size: int
    row: int
    of_queries: Tensor
    of_keys: Tensor

    def queries(self, x: Tensor) -> Tensor:
        """Return the rows of queries, (..., T, size, d_k), of (..., N, d_k)."""
        return _pairs(x, self.size)[..., self.row, :, :]

    def keys(self, x: Tensor) -> Tensor:
        """Return the rows of keys, (..., T, size, d_k), of (..., N, d_k)."""
        return _pairs(x, self.size)[..., 1 - self.row, :, :]

    def block(self, matrix: Tensor) -> Tensor:
        """Return where the products stand, (..., T, size, size), in a matrix (..., N, N)."""
        pairs = matrix.unflatten(-1, (-1, 2, self.size))[..., 1 - self.row, :]
        pairs = pairs.unflatten(-3, (-1, 2, self.size))[..., self.row, :, :, :]
        return pairs.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)


def _levels(width: int, past: Tensor | None, future: Tensor | None) -> Iterator[_Level]:
    """Yield all levels of `width` tokens, of both directions or one of them."""
    for size in (1 << power for power in range((width - 1).bit_length())):
        if past is not None:
            first, second = _pairs(past, size).unbind(-3)
            meeting = first[..., -1:, :]
            yield _Level(size, 1, (second - meeting).exp_(), (meeting - first).exp_())
        if future is not None:
            first, second = _pairs(future, size).unbind(-3)
            meeting = second[..., :1, :]
            yield _Level(size, 0, (first - meeting).exp_(), (meeting - second).exp_())


def _pairs(x: Tensor, size: int) -> Tensor:
    return x.unflatten(-2, (-1, 2, size))


def _padded(x: Tensor) -> Tensor:
    """Return (..., N, d_k) without gaps in memory, its last row repeated until there are a power of two of them."""
    missing = (1 << (x.size(-2) - 1).bit_length()) - x.size(-2)
    return torch.cat([x, x[..., -1:, :].expand(*x.shape[:-2], missing, -1)], dim=-2) if missing else x.contiguous()
