"""Masks as large negative energies.

They are finite: a query without a single real key would otherwise be softmax(-inf, ..., -inf) = NaN, and
fairseq's beam search turns NaN into a silently impossible hypothesis. Half of the smallest number leaves
room to add an energy without overflow in half precision.
"""

import torch


def masked_energy(dtype):
    """The energy of a masked pair in `dtype`."""
    return torch.finfo(dtype).min / 2


def padding_energy(padding_mask, dtype):
    """(B, M) mask, True at padding, to energies (B, 1, 1, M) to add; None for None."""
    if padding_mask is None:
        return None
    energy = torch.zeros(padding_mask.shape, dtype=dtype, device=padding_mask.device)
    return energy.masked_fill_(padding_mask, masked_energy(dtype))[:, None, None, :]


def normalized(energy, padding_mask=None, hidden=None):
    """Softmax of energies over the keys that a query may see, in float32 at least.

    Args:
        energy: (B, H, N, M), or (1, H, N, M) for all sentences.
        padding_mask: (B, M), True at padding, or None if there is none.
        hidden: (N, M), True at pairs that no sentence mixes, such as the future; or None.

    Returns:
        Weights (B, H, N, M), or (1, H, N, M) where `energy` is shared and nothing is padded.
    """
    energy = energy.to(torch.promote_types(energy.dtype, torch.float32))
    if hidden is not None:
        energy = energy.masked_fill(hidden, masked_energy(energy.dtype))
    if padding_mask is not None:
        energy = energy.masked_fill(padding_mask[:, None, None, :], masked_energy(energy.dtype))
    return energy.softmax(dim=-1)
