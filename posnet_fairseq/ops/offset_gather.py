"""Attention to relative positions without a vector for every pair.

A vector for each pair (n, m) would take O(N·M·D). All pairs with one offset share a row of a table of T rows, so
products are taken with the T rows first, O(N·T·D), and then gathered for the pairs, O(N·M): iRPE (Wu et al., ICCV
2021) Eqs. 26-28.
"""

import torch
from torch import Tensor

from posnet_fairseq.ops.dtypes import float_type, in_float


def gather_by_offset(per_row: Tensor, index: Tensor) -> Tensor:
    """Return out[..., n, m] = per_row[..., n, index[n, m]], (..., N, M).

    Args:
        per_row: (..., N, T), a value of each query for each row of a table.
        index: (N, M), the row that each pair uses; (1, M) if all queries stand at one position.
    """
    return per_row.gather(-1, index.expand(*per_row.shape[:-1], -1))


def sum_by_offset(weights: Tensor, index: Tensor, rows: int) -> Tensor:
    """Return out[..., n, t] = Σ_m weights[..., n, m] over the pairs with index[n, m] = t, (..., N, T).

    It is the transpose of :func:`gather_by_offset`.

    Args:
        weights: (..., N, M).
        index: as there.
        rows: T.
    """
    # GPUs would round to 16 bits after each of the many weights of a tail.
    sums = torch.zeros(*weights.shape[:-1], rows, dtype=float_type(weights), device=weights.device)
    return sums.scatter_add(-1, index.expand_as(weights), in_float(weights)).to(weights.dtype)


def key_energy(k: Tensor, table: Tensor, index: Tensor) -> Tensor:
    """Return out[..., n, m] = k_m · table[index[n, m]], (B, H, N, M).

    Args:
        k: (B, H, M, d).
        table: (H or 1, T, d).
        index: (N, M), the row that each pair uses.
    """
    if len(index) == 1:  # a decoding step: each key meets one row only
        return (k * table[:, index[0]]).sum(dim=-1).unsqueeze(-2)
    rows, keys = table.size(1), torch.arange(index.size(1), device=k.device)
    # Indexing writes (N, M) in order; a gather along T would write it transposed, which every later pass pays for.
    return (k @ table.mT).flatten(-2)[..., keys * rows + index]


def plus_products(energy: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return energy + q·k, (B, H, N, M), computed in one pass.

    Args:
        energy: (B, H, N, M), or (1, H, N, M) for all sentences.
        q: (B, H, N, d).
        k: (B, H, M, d).
    """
    batch, heads = q.shape[:2]
    energy = energy.expand(batch, -1, -1, -1).flatten(0, 1)
    return torch.baddbmm(energy, q.flatten(0, 1), k.flatten(0, 1).mT).unflatten(0, (batch, heads))
