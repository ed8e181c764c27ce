"""Base of the mixers whose weights no token has a part in."""

import functools
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from posnet_fairseq.mixers.bases.energies import StoredEnergy
from posnet_fairseq.mixers.bases.operations import MixingSize
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops.chunks import in_chunks
from posnet_fairseq.ops.masking import masked_energy, normalized
from posnet_fairseq.ops.static_mixing import SharedWeights, mix_real


class PositionBasedMixer(TokenMixer):
    """Weights from positions alone: a subclass says what the energy is, and nothing else.

    Attributes:
        energies: modules whose sum is the energy, each a :class:`posnet_fairseq.mixers.bases.energies.Energy`, which a
            :class:`StoredEnergy` can replace. A subclass fills it, or overrides :meth:`energy`.

    Class attributes:
        softmax: whether weights are the softmax of energies, or the energies themselves.
    """

    places = ("encoder", "decoder")
    static = True
    softmax = True

    def __init__(self, settings):
        super().__init__(settings)
        self.energies = nn.ModuleList()

    def energy(self, offsets, positions, memory_positions):
        """α̂ before masking, for queries from position 0 on.

        Args:
            offsets: (N, M), ⌊γn⌋ - m.
            positions: (P, D) vectors of the queries' positions, None if this mixer does not read them.
            memory_positions: (P, D), of the memory's.

        Returns:
            (H, N, M).
        """
        return sum(energy(offsets, positions, memory_positions) for energy in self.energies)

    def hidden(self, offsets):
        """(N, M), True at pairs that are not mixed, or None: in the decoder, the future."""
        return offsets < 0 if self.causal else None

    def shared_weights(self, queries, keys, context):
        """The weights of a full pass without padding, :class:`SharedWeights` or the like."""
        energy = self._energies(queries, keys, context)
        return SharedWeights(normalized(energy[None])[0] if self.softmax else energy)

    def mix(self, query, memory, context):
        """Values mixed with the weights of their positions."""
        if context.state is not None:
            return self.step(query, memory, context)
        value, padding_mask = self.value(memory, context), context.padding_mask
        if self.drop_probability or context.need_weights:
            return self._mix_each(query, value, context)
        weights = self.shared_weights(query.size(1), value.size(2), context)
        if padding_mask is None:
            return weights.mix(value), None
        if not self.softmax:
            return weights.mix(value.masked_fill(padding_mask[:, None, :, None], 0)), None
        mixed = mix_real(weights, value, padding_mask, None if self.place == "cross" else padding_mask)
        return (mixed, None) if mixed is not None else self._mix_each(query, value, context)

    def step(self, query, memory, context):
        """As :meth:`mix`, for one new query a hypothesis."""
        value = self.value(memory, context)
        keys, ahead = value.size(2), context.ahead
        columns = keys if self.place == "cross" else ahead
        table = context.state.keep_table("energy", ahead, lambda: self._energies(ahead, columns, context))
        return self._mix_each(query, value, context, table.index_select(1, context.step(query.device))[..., :keys])

    def _mix_each(self, query, value, context, energy=None):
        """With weights for each sentence, which padding and dropout make their own."""
        if energy is None:
            energy = self._energies(query.size(1), value.size(2), context)
        energy = energy[None]

        def weigh(padding_mask):
            if self.softmax:
                return normalized(energy, padding_mask).to(value.dtype)
            weights = energy.to(value.dtype)
            return weights if padding_mask is None else weights.masked_fill(padding_mask[:, None, None], 0)

        # As it is now, also where weights are made again in the backward pass.
        drop = functools.partial(F.dropout, p=self.drop_probability)
        # Hypotheses share weights until some are dropped: for each hypothesis others.
        queries = query.size(1) if self.drop_probability else -1

        def attend(value, padding_mask):
            return drop(weigh(padding_mask).expand(value.size(0), -1, queries, -1)) @ value

        padding_mask = context.padding_mask
        if context.need_weights:
            return attend(value, padding_mask), weigh(padding_mask)
        return in_chunks(attend, (value, padding_mask), energy.numel(), self.outweighs(energy.size(3))), None

    def memory_positions(self, context):
        """(P, D) vectors of the memory's positions, or None."""
        return context.memory_positions if self.place == "cross" else context.positions

    def _energies(self, queries, keys, context):
        """(H, N, M) for queries from position 0 on, hidden pairs masked."""
        offsets = replace(context, first=0).offsets(queries, keys, self.mixer_version.device)
        energy = self.energy(offsets, context.positions, self.memory_positions(context))
        hidden = self.hidden(offsets)
        if hidden is None:
            return energy
        return energy.masked_fill(hidden, masked_energy(energy.dtype) if self.softmax else 0)

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs):
        """Take tables in the place of energies where the checkpoint has them."""
        for index, energy in enumerate(self.energies):
            table = state_dict.get(f"{prefix}energies.{index}.stored")
            if table is not None:
                self.energies[index] = StoredEnergy(
                    torch.empty_like(table, device=self.mixer_version.device), energy.reach
                )
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def operations(self, size: MixingSize) -> float:
        """Multiplications of the projections, of :attr:`energies`, and of weights with values."""
        if not self.energies:
            return super().operations(size)
        energies = sum(energy.operations(size) for energy in self.energies)
        return self.projection_operations(size) + energies + size.queries * size.keys * size.embed_dim
