"""Attention to relative positions without a vector for every pair.

A vector for each pair (n, m) would take O(N·M·D). All pairs of the same offset share a row of a table with T rows, so
products are taken with the T rows first, O(N·T·D), and then spread over the pairs, O(N·M): iRPE (Wu et al., ICCV
2021) Eqs. 26-28.
"""

import torch


def gather_by_offset(per_row, index):
    """out[..., n, m] = per_row[..., n, index[n, m]].

    Args:
        per_row: (..., N, T), what each query gives to each row of a table.
        index: (N, M), the row that a pair shares; (1, M) if all queries stand at one position.

    Returns:
        (..., N, M).
    """
    return per_row.gather(-1, index.expand(*per_row.shape[:-1], -1))


def key_energy(k, table, index):
    """out[..., n, m] = k_m · table[index[n, m]].

    Args:
        k: (B, H, M, d).
        table: (H or 1, T, d).
        index: (N, M).

    Returns:
        (B, H, N, M).
    """
    if len(index) == 1:  # a decoding step: no key meets more than one row
        return (k * table[:, index[0]]).sum(dim=-1).unsqueeze(-2)
    rows, keys = table.size(1), torch.arange(index.size(1), device=k.device)
    # Indexing writes (N, M) in order; a gather along T would write it transposed, which every later pass pays for.
    return (k @ table.mT).flatten(-2)[..., keys * rows + index]


def plus_products(energy, q, k):
    """energy + q·k in one pass.

    Args:
        energy: (B, H, N, M), or (1, H, N, M) for all sentences.
        q: (B, H, N, d).
        k: (B, H, M, d).

    Returns:
        (B, H, N, M).
    """
    batch, heads = q.shape[:2]
    energy = energy.expand(batch, -1, -1, -1).flatten(0, 1)
    return torch.baddbmm(energy, q.flatten(0, 1), k.flatten(0, 1).mT).unflatten(0, (batch, heads))


def sum_by_offset(weights, index, rows):
    """out[..., n, t] = Σ_m weights[..., n, m] over the pairs with index[n, m] = t.

    It is the transpose of :func:`gather_by_offset`.

    Args:
        weights: (..., N, M).
        index: (N, M).
        rows: T.

    Returns:
        (..., N, T).
    """
    sums = torch.zeros(*weights.shape[:-1], rows, dtype=weights.dtype, device=weights.device)
    return sums.scatter_add(-1, index.expand_as(weights), weights)
