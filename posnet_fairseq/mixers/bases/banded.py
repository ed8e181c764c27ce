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
from posnet_fairseq.ops.static_mixing import BandWeights, StaticWeights


class BandedMixer(PositionBasedMixer):
    """A mixer with one energy, whose `reach` is R: offsets beyond ±R have the weights of ±R, or none.

    The time of a full pass over long sentences grows linearly with their length. The decoding state has a
    constant size: R + 1 values of each hypothesis, and with tails the sums up to each of these.

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

    def _uses_band(self, queries: int, keys: int) -> bool:
        """Whether offsets share weights, which dropout forbids, in a full pass, and whether that is faster."""
        return self.settings.grid is None and not self.drop_probability and self.band.is_faster(queries, keys)

    def shared_weights(self, queries: int, keys: int, context: MixingContext) -> StaticWeights:
        """Return the weights of a full pass without padding: one for each clipped offset where that is faster."""
        if not self._uses_band(queries, keys):
            return super().shared_weights(queries, keys, context)
        return self._band_weights(queries, keys, context)

    def _mix_without_looking(self, query: Tensor, value: Tensor, context: MixingContext) -> Mixed:
        queries, keys, padding_mask = query.size(1), value.size(2), context.padding_mask
        if torch.compiler.is_compiling() or not self._uses_band(queries, keys):
            return super()._mix_without_looking(query, value, context)
        assert padding_mask is not None
        energy = self._energies_of_offsets(queries, keys, context)
        lengths = (~padding_mask).sum(dim=1)[:, None, None]
        weights = BandWeights.softmax(self.band, context.length_ratio, energy, lengths)
        return weights.mix(value.masked_fill(padding_mask[:, None, :, None], 0)), None

    def _band_weights(self, queries: int, keys: int, context: MixingContext) -> BandWeights:
        make = BandWeights.softmax if self.softmax else BandWeights.plain
        return make(self.band, context.length_ratio, self._energies_of_offsets(queries, keys, context), keys)

    def _energies_of_offsets(self, queries: int, keys: int, context: MixingContext) -> Tensor:
        """Return energies (H, N, 2R + 1)."""
        at = context.scaled_positions(queries)
        table = self.energies[0].table(at, keys, context.positions, self.memory_positions(context))
        return table.expand(-1, queries, -1)

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
            return new.new_zeros(shape, dtype=torch.promote_types(new.dtype, torch.float32))

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
        weights = self._band_weights(rows, rows, context).weights[..., reach:]  # of the distances from 0 to R
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
