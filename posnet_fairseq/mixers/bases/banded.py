"""Base class of the position-based mixers whose weights depend on clipped offsets.

In steps, the values of the last tokens lie in a ring of slots, token m in slot m modulo the number of slots. In a band
with tails a token that leaves the ring is added to a sum, which has one more slot at the end. R + 1 slots suffice in
both cases. Nothing is overwritten, as gradients and exported graphs need it; else
:mod:`posnet_fairseq.ops.beam_backpointers` is faster.
"""

from typing import Any

import torch
from torch import Tensor

from posnet_fairseq.mixers.bases.context import Mixed, MixingContext
from posnet_fairseq.mixers.bases.decoding_state import is_writable
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.ops import beam_backpointers
from posnet_fairseq.ops.band import Band
from posnet_fairseq.ops.dtypes import float_type


class BandedMixer(PositionBasedMixer):
    """A mixer with one energy, whose `reach` is R: offsets beyond ±R have the weights of ±R, or none.

    The decoding state has a constant size: R + 1 values of each hypothesis, and with tails the sums up to each of
    these.

    Attributes:
        tails: whether offsets beyond ±R are mixed at all.
    """

    tails: bool = True

    @property
    def band(self) -> Band:
        """Which offsets have a weight of their own."""
        return Band(self.energies[0].reach, self.tails, self.causal)

    def hidden(self, offsets: Any) -> Tensor | None:
        """Return a mask, True at the future in the decoder and, without tails, beyond ±R; None if all are mixed."""
        cells = self.settings.cells
        if cells is None:
            return self.band.hidden(offsets)
        if self.tails:
            return None
        outside = [each.abs() > self.band.clip_distance for each in offsets]
        return cells.pairs(outside[0] | outside[1], False)

    def mix_step(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
        """Mix for one new query of each hypothesis, from the last values and, with tails, the sum of earlier ones."""
        assert context.state is not None
        if self.place == "cross" or self.drop_probability or context.need_weights:
            return super().mix_step(query, memory, context)
        assert memory is not None
        state, new = context.state, self.project_values(memory)
        if state.in_place:
            return self._mix_ancestors(new, context), None
        weights = state.table("weights", context.table_rows, lambda: self._weights_by_slot(context, self.tails))

        def empty() -> Tensor:
            shape = *new.shape[:2], self.band.clip_distance + 1, self.head_dim
            return new.new_zeros(shape, dtype=float_type(new))

        slots = state.get_or_create("values", empty)
        slots = state.rows["values"] = append(slots, new, context.query_index(), self.band)
        mixed = context.row(weights).to(slots.dtype) @ slots
        return mixed.to(new.dtype), None

    def _mix_ancestors(self, new: Tensor, context: MixingContext) -> Tensor:
        """Mix as :meth:`mix_step` does, with a memory that is written in place."""
        state: Any = context.state
        weights = state.table("weights of ancestors", context.table_rows, lambda: self._weights_by_slot(context, False))
        memory = state.values
        if memory is None or memory.size(2) < len(new) or not is_writable(memory):
            memory = state.values = beam_backpointers.allocate(new, self.band, memory)
        rows = state.get_or_create("ancestors", lambda: new.new_zeros(len(new), memory.size(1), dtype=torch.int64))
        if not is_writable(rows):
            rows = state.rows["ancestors"] = rows.clone()
        beam_backpointers.write(memory, rows, new, state.position)
        return beam_backpointers.mix(memory, rows, weights[:, state.position], state.position).to(new.dtype)

    def _weights_by_slot(self, context: MixingContext, tails: bool) -> Tensor:
        """Return weights (H, steps, R + 1). `tails`: whether the tail has a slot at the end, instead of distance R."""
        reach, rows = self.band.clip_distance, context.table_rows
        at = torch.arange(rows, device=context.device)
        energy = self.energies[0].table(at, rows, context.positions, context.positions).expand(-1, rows, -1)
        weights = self.band.softmax(energy) if self.softmax else self.band.visible(energy)
        weights = weights[..., reach:]  # of the distances from 0 to R
        steps, slots = torch.arange(rows, device=weights.device)[:, None], reach + 1 - tails
        distances = (steps - torch.arange(slots, device=weights.device)) % slots
        if tails:
            distances = torch.cat([distances, torch.full_like(steps, reach)], dim=1)
        return weights.gather(2, distances.expand(len(weights), -1, -1))


def append(slots: Tensor, new: Tensor, step: Tensor, band: Band) -> Tensor:
    """Return the slots, a new tensor, after the value of one step's token has been written.

    Args:
        slots: (B, H, R + 1, d), zeros before the first step; in float32 or wider, since a sum of many values is in it.
        new: (B, H, 1, d).
        step: (1,), position of the token.
        band: a causal band.
    """
    slot, new = step % (band.clip_distance + 1 - band.tails), new.to(slots.dtype)
    if not band.tails:
        return slots.index_copy(2, slot, new)
    leaving = slots.index_select(2, slot)
    last = torch.full_like(slot, slots.size(2) - 1)
    return slots.index_copy(2, torch.cat([slot, last]), torch.cat([new, slots[:, :, -1:] + leaving], dim=2))
