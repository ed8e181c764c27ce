"""Base of the position-based mixers: their weights depend on positions only."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from posnet_fairseq.mixers.bases.context import Mixed, MixingContext
from posnet_fairseq.mixers.bases.energies import StoredEnergy
from posnet_fairseq.mixers.bases.mixer_settings import MixerSettings
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops.chunks import in_chunks
from posnet_fairseq.ops.dropout import dropout
from posnet_fairseq.ops.host_sync import may_look_at
from posnet_fairseq.ops.masking import masked_energy, normalized
from posnet_fairseq.ops.static_mixing import is_exact, mix_all, mix_real, real_share


class PositionBasedMixer(TokenMixer):
    """Weights from positions alone: a subclass says what the energy is, and nothing else.

    Attributes:
        energies: modules whose sum is the energy, each an :class:`Energy`, which a :class:`StoredEnergy` can replace. A
            subclass fills it, or overrides :meth:`energy`.
        softmax: whether weights are the softmax of energies, or the energies themselves.
    """

    places: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    static = True
    softmax: ClassVar[bool] = True

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.energies: Any = nn.ModuleList()

    def energy(self, offsets: Any, positions: Tensor | None, memory_positions: Tensor | None) -> Tensor:
        """Return α̂ before masking, for queries from position 0 on.

        Args:
            offsets: (N, M), ⌊γn⌋ - m; on a grid :data:`posnet_fairseq.ops.grid.GridOffsets`.
            positions: (P, D) vectors of the queries' positions, None if this mixer does not read them.
            memory_positions: (P, D), of the memory's.

        Returns:
            (H, N, M).
        """
        if not self.energies:
            raise NotImplementedError(f"{type(self).__name__} has no energies: append some to self.energies")
        first, *others = (energy(offsets, positions, memory_positions) for energy in self.energies)
        return sum(others, start=first)

    def hidden(self, offsets: Any) -> Tensor | None:
        """Return a mask (N, M), True at pairs that are not mixed, or None: in the decoder, the future."""
        return offsets < 0 if self.causal else None

    def mix(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
        """Mix values with the weights of their positions."""
        if context.state is not None:
            return self.mix_step(query, memory, context)
        value = self.value(memory, context)
        if context.need_weights or context.hidden is not None or self.drop_probability:
            return self.mix_each(query, value, context)
        return self._mix_shared(query, value, context)

    def mix_step(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
        """Mix for one new query of each hypothesis."""
        assert context.state is not None
        value = self.value(memory, context)
        keys, rows = value.size(2), context.table_rows
        columns = keys if self.place == "cross" else rows
        table = context.state.table("energy", rows, lambda: self.masked_energies(rows, columns, context))
        return self.mix_each(query, value, context, context.row(table)[..., :keys])

    def _mix_shared(self, query: Tensor, value: Tensor, context: MixingContext) -> Mixed:
        """Mix with one table of weights for all sentences, where padding does not forbid it."""
        padding_mask = context.padding_mask
        if padding_mask is not None and self.softmax and not may_look_at(padding_mask):
            return self.mix_each(query, value, context)  # exact whatever the numbers
        energy = self.masked_energies(query.size(1), value.size(2), context)
        weights = normalized(energy[None])[0] if self.softmax else energy
        if padding_mask is None:
            return mix_all(weights, value), None
        real_values = value.masked_fill(padding_mask[:, None, :, None], 0)
        if not self.softmax:
            return mix_all(weights, real_values), None
        share = real_share(weights, padding_mask)
        if not is_exact(share, value.dtype, None if self.place == "cross" else padding_mask):
            return self.mix_each(query, value, context)
        return mix_real(weights, real_values, share), None

    def mix_each(
        self,
        query: Tensor,
        value: Tensor,
        context: MixingContext,
        energy: Tensor | None = None,
        change: Callable[[Tensor, Tensor | None], Tensor] | None = None,
    ) -> Mixed:
        """Mix values (B, H, M, d) with weights for each sentence, as padding and dropout demand.

        `energy`: (H, N, M), hidden pairs masked, by default that of all queries from position 0 on. `change`: a
        function of weights, (B or 1, H, N, M), and the padding mask, to the weights that are used.
        """
        if energy is None:
            energy = self.masked_energies(query.size(1), value.size(2), context)
        energies = energy[None]

        def weigh(padding_mask: Tensor | None, hidden: Tensor | None) -> Tensor:
            if self.softmax:
                weights = normalized(energies, padding_mask, hidden).to(value.dtype)
            else:
                weights = without_padding(energies.to(value.dtype), padding_mask)
                weights = weights if hidden is None else weights.masked_fill(hidden, 0)
            return weights if change is None else change(weights, padding_mask)

        # The probability of this call also holds where weights are made again in the backward pass.
        drop = functools.partial(dropout, p=self.drop_probability)
        # Hypotheses share weights until some are dropped: for each hypothesis others.
        queries = query.size(1) if self.drop_probability else -1

        def attend(value: Tensor, padding_mask: Tensor | None, hidden: Tensor | None) -> Tensor:
            return drop(weigh(padding_mask, hidden).expand(value.size(0), -1, queries, -1)) @ value

        padding_mask = context.padding_mask
        hidden = context.hidden
        if hidden is not None and (own := self.hidden(context.offsets(query.size(1), value.size(2)))) is not None:
            hidden = hidden | own  # for normalized() to find the queries that see nothing
        if context.need_weights:
            return attend(value, padding_mask, hidden), weigh(padding_mask, hidden)
        recompute = self.should_recompute(energies.size(3))
        return in_chunks(attend, (value, padding_mask, hidden), energies[0].numel(), recompute), None

    def memory_positions(self, context: MixingContext) -> Tensor | None:
        """Return (P, D) vectors of the memory's positions, or None."""
        return context.memory_positions if self.place == "cross" else context.positions

    def masked_energies(self, queries: int, keys: int, context: MixingContext) -> Tensor:
        """Return energies (H, N, M) for queries from position 0 on, hidden pairs masked."""
        offsets = context.offsets(queries, keys)
        energy = self.energy(offsets, context.positions, self.memory_positions(context))
        hidden = self.hidden(offsets)
        if hidden is None:
            return energy
        return energy.masked_fill(hidden, masked_energy(energy.dtype) if self.softmax else 0)

    def store(self, index: int, table: Tensor) -> None:
        """Put the table of an energy in its place, (H, N or 1, M or 2R + 1), for at most N queries of M tokens."""
        of = self.energies[index]
        self.energies[index] = StoredEnergy(table, of.reach, of.cells)
        if table.size(1) > 1 and self.settings.grid is None:
            longest = min(self.max_positions, table.size(1))
            self.settings = dataclasses.replace(self.settings, max_positions=longest)

    def max_memory(self) -> int | None:
        """Return the most memory tokens of which there are positions, those of a stored table; None for any number."""
        for energy in self.energies:
            if isinstance(energy, StoredEnergy) and energy.reach is None:
                return energy.stored.size(2)
        return super().max_memory()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        """Take tables in the place of energies where the checkpoint has them."""
        device = self.out_proj.weight.device
        for index in range(len(self.energies)):
            table = state_dict.get(f"{prefix}energies.{index}.stored")
            if table is not None:
                # Other heads or another reach than this mixer's are refused as other weights are.
                shape, of = [self.num_heads, *table.shape[1:]], self.energies[index]
                if of.reach is not None:
                    shape[2:] = [of.buckets.count]
                # empty_like would import sympy on the meta device.
                self.store(index, torch.empty(shape, dtype=table.dtype, device=device))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def without_padding(weights: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Return weights (B or 1, H, N, M) with zeros at padding. `padding_mask`: (B, M), True at padding, or None."""
    return weights if padding_mask is None else weights.masked_fill(padding_mask[:, None, None], 0)
