"""Base of the position-based mixers whose weights are those of clipped offsets."""

from dataclasses import replace

import torch

from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.ops.band import Band, BandWeights
from posnet_fairseq.ops.heads import split_heads
from posnet_fairseq.ops.ring import append, slot_order


class BandedMixer(PositionBasedMixer):
    """Its one energy has a reach R: offsets beyond ±R share the weights of ±R, or have none.

    Long sentences are mixed in a time that grows with their length, not with its square, and a decoder's state has the
    size of R tokens in every step.

    Attributes:
        tails: whether offsets beyond ±R are mixed at all.
    """

    tails = True

    @property
    def band(self):
        """Which offsets have a weight of their own."""
        return Band(self.energies[0].reach, self.tails, self.causal)

    def hidden(self, offsets):
        """Also what lies beyond the reach of a band without tails."""
        return self.band.hidden(offsets)

    def shared_weights(self, queries, keys, context):
        """Those of clipped offsets where that is faster."""
        if not self.band.is_faster(queries, keys):
            return super().shared_weights(queries, keys, context)
        return self._band_weights(queries, keys, context)

    def _band_weights(self, queries, keys, context):
        at = replace(context, first=0).at(queries, self.mixer_version.device)
        memory_positions = self.memory_positions(context)
        energy = self.energies[0].table(at, keys, context.positions, memory_positions).expand(-1, queries, -1)
        make = BandWeights.softmax if self.softmax else BandWeights.plain
        return make(self.band, context.length_ratio, energy, keys)

    def step(self, query, memory, context):
        """With the last R values and, of all earlier ones, the sum."""
        if self.place == "cross" or self.drop_probability:
            return super().step(query, memory, context)
        weights = context.state.keep_table("weights", context.ahead, lambda: self._weights_by_slot(context))
        new = split_heads(self.gating.value(memory), self.num_heads)
        step, slots = context.step(query.device), context.state.keep("values", lambda: self._empty_slots(new))
        slots = context.state.rows["values"] = append(slots, new, step, self.band)
        mixed = weights.index_select(1, step).to(slots.dtype) @ slots
        return mixed.to(new.dtype), None

    def _empty_slots(self, new):
        batch, heads, _, width = new.shape
        dtype = torch.promote_types(new.dtype, torch.float32)
        return torch.zeros(batch, heads, self.band.clip_distance + 1, width, dtype=dtype, device=new.device)

    def _weights_by_slot(self, context):
        weights = self._band_weights(context.ahead, context.ahead, context).weights
        return slot_order(weights[..., self.band.clip_distance :], self.band)
