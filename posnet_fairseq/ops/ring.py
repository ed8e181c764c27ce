"""The last values of each hypothesis and the sum of all before them: a decoder's memory of constant size.

The values of the last tokens lie in a ring of slots, token m in slot m modulo their number. Where the band has tails, a
token that leaves the ring is added to a sum, in one more slot at the end. Either way R + 1 slots are enough.
"""

import torch


def _size(band):
    return band.clip_distance if band.tails else band.clip_distance + 1


def append(slots, new, step, band):
    """The slots with the value of a step's token in its place.

    Args:
        slots: (B, H, R + 1, d); zeros before the first step. In float32 at least, since it holds a sum of many.
        new: (B, H, 1, d).
        step: (1,), position of the token.
        band: a causal :class:`posnet_fairseq.ops.band.Band`.

    Returns:
        (B, H, R + 1, d), a new tensor.
    """
    slot, new = step % _size(band), new.to(slots.dtype)
    if not band.tails:
        return slots.index_copy(2, slot, new)
    leaving = slots.index_select(2, slot)
    last = torch.full_like(slot, slots.size(2) - 1)
    return slots.index_copy(2, torch.cat([slot, last]), torch.cat([new, slots[:, :, -1:] + leaving], dim=2))


def slot_order(weights, band):
    """Weights by distance to weights by slot.

    Args:
        weights: (H, steps, R + 1), of distances 0 to R from each step's token; 0 where there is no token.
        band: as in :func:`append`.

    Returns:
        (H, steps, R + 1), in the order of the slots at each step.
    """
    steps, size = torch.arange(weights.size(1), device=weights.device)[:, None], _size(band)
    distances = (steps - torch.arange(size, device=weights.device)) % size
    if band.tails:
        distances = torch.cat([distances, torch.full_like(steps, band.clip_distance)], dim=1)
    return weights.gather(2, distances.expand(len(weights), -1, -1))
