"""Masks as large negative energies.

They are finite: a query without a single real key would otherwise be softmax(-inf, ..., -inf) = NaN, and
fairseq's beam search turns NaN into a silently impossible hypothesis. Half of the smallest number leaves
room to add an energy without overflow in half precision.
"""

import torch


def at_least_float32(energy):
    """Energies in a precision fit for a softmax: half precision becomes float32, float64 stays."""
    return energy.to(torch.promote_types(energy.dtype, torch.float32))


def masked_energy(dtype):
    """The energy of a masked pair in `dtype`."""
    return torch.finfo(dtype).min / 2


def padding_energy(padding_mask, dtype):
    """(B, M) mask, True at padding, to energies (B, 1, 1, M) to add; None for None."""
    if padding_mask is None:
        return None
    energy = torch.zeros(padding_mask.shape, dtype=dtype, device=padding_mask.device)
    return energy.masked_fill_(padding_mask, masked_energy(dtype))[:, None, None, :]


def future_mask(num_queries, num_keys, first, device):
    """(N, M), True where key m lies after query first + n."""
    queries = torch.arange(first, first + num_queries, device=device)
    return torch.arange(num_keys, device=device) > queries[:, None]
