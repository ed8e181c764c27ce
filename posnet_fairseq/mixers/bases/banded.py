"""Base class of the position-based mixers whose weights depend on clipped offsets."""

from typing import Any

import torch
from torch import Tensor

from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.ops.band import Band, BandWeights
from posnet_fairseq.ops.heads import split_heads
from posnet_fairseq.ops.ring import append, slot_order, write
from posnet_fairseq.ops.static_mixing import StaticWeights


class BandedMixer(PositionBasedMixer):
    """A mixer with one energy, whose `reach` is R: offsets beyond ±R have the weights of ±R, or none.

    The time of a full pass over long sentences grows linearly with their length. The decoding state has the
    size of R tokens at every step.

    Attributes:
        tails: whether offsets beyond ±R are mixed at all.
    """

    tails: bool = True

    @property
    def band(self) -> Band:
        """Which offsets have a weight of their own."""
        energies: Any = self.energies
        return Band(energies[0].reach, self.tails, self.causal)

    def hidden(self, offsets: Tensor) -> Tensor | None:
        """(N, M), True at the future in the decoder and, without tails, at offsets beyond ±R; None if all are mixed."""
        return self.band.hidden(offsets)

    def shared_weights(self, queries: int, keys: int, context: MixingContext) -> StaticWeights:
        """The weights of a full pass without padding: one for each clipped offset where that is faster."""
        if not self.band.is_faster(queries, keys):
            return super().shared_weights(queries, keys, context)
        return self._band_weights(queries, keys, context)

    def _band_weights(self, queries: int, keys: int, context: MixingContext) -> BandWeights:
        at = context.scaled_positions(queries)
        memory_positions = self.memory_positions(context)
        energies: Any = self.energies
        energy = energies[0].table(at, keys, context.positions, memory_positions).expand(-1, queries, -1)
        make = BandWeights.softmax if self.softmax else BandWeights.plain
        return make(self.band, context.length_ratio, energy, keys)

    def mix_step(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> tuple[Tensor, Tensor | None]:
        """:meth:`mix` for one new query of each hypothesis, from the last R values and the sum of all earlier ones."""
        assert context.state is not None
        if self.place == "cross" or self.drop_probability or context.need_weights:
            return super().mix_step(query, memory, context)
        assert memory is not None
        weights = context.state.table("weights", context.table_rows, lambda: self._weights_by_slot(context))
        new = split_heads(self.gating.value(memory), self.num_heads)
        state, slots = context.state, context.state.get_or_create("values", lambda: self._empty_slots(new))
        weights = context.row(weights).to(slots.dtype)
        if state.in_place:
            write(slots, new, state.position, self.band)
            used = min(state.position + 1, slots.size(2))  # the others are empty
            slots, weights = slots[:, :, :used], weights[..., :used]
        else:
            slots = state.rows["values"] = append(slots, new, context.query_index(), self.band)
        mixed = weights @ slots
        return mixed.to(new.dtype), None

    def _empty_slots(self, new: Tensor) -> Tensor:
        batch, heads, _, width = new.shape
        dtype = torch.promote_types(new.dtype, torch.float32)
        return torch.zeros(batch, heads, self.band.clip_distance + 1, width, dtype=dtype, device=new.device)

    def _weights_by_slot(self, context: MixingContext) -> Tensor:
        weights = self._band_weights(context.table_rows, context.table_rows, context).weights
        return slot_order(weights[..., self.band.clip_distance :], self.band)
