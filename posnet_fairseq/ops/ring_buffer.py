"""Decoding state of constant size: the last values of each hypothesis and the sum of all earlier ones.

The values of the last tokens lie in a ring of slots, token m in slot m modulo the number of slots. In a band with tails
a token that leaves the ring is added to a sum, which has one more slot at the end. R + 1 slots suffice in both cases.
Nothing is overwritten, as gradients and exported graphs need it. Without them
:mod:`posnet_fairseq.ops.beam_backpointers` is faster.
"""

import torch
from torch import Tensor

from posnet_fairseq.ops.band import Band


def _size(band: Band) -> int:
    """Return the number of slots that tokens have, without that of the sum."""
    return band.clip_distance if band.tails else band.clip_distance + 1


def append(slots: Tensor, new: Tensor, step: Tensor, band: Band) -> Tensor:
    """Return the slots after the value of one step's token has been written.

    Args:
        slots: (B, H, R + 1, d), zeros before the first step; in float32 or wider, since a sum of many values is in it.
        new: (B, H, 1, d).
        step: (1,), position of the token.
        band: a causal band.

    Returns:
        (B, H, R + 1, d), a new tensor.
    """
    slot, new = step % _size(band), new.to(slots.dtype)
    if not band.tails:
        return slots.index_copy(2, slot, new)
    leaving = slots.index_select(2, slot)
    last = torch.full_like(slot, slots.size(2) - 1)
    return slots.index_copy(2, torch.cat([slot, last]), torch.cat([new, slots[:, :, -1:] + leaving], dim=2))


def slot_order(weights: Tensor, band: Band) -> Tensor:
    """Return weights in the order of the slots at each step.

    Args:
        weights: (H, steps, R + 1), of the distances 0 to R from each step's token; 0 where there is no token.
        band: a causal band.

    Returns:
        (H, steps, R + 1).
    """
    steps, size = torch.arange(weights.size(1), device=weights.device)[:, None], _size(band)
    distances = (steps - torch.arange(size, device=weights.device)) % size
    if band.tails:
        distances = torch.cat([distances, torch.full_like(steps, band.clip_distance)], dim=1)
    return weights.gather(2, distances.expand(len(weights), -1, -1))
