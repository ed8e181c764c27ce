"""Base of the mixers whose weights no token has a part in."""

from torch import nn

from posnet_fairseq.mixers._base import TokenMixer
from posnet_fairseq.ops.chunks import in_chunks
from posnet_fairseq.ops.masking import masked_energy, normalized
from posnet_fairseq.ops.static_mixing import mix_static


class PositionBasedMixer(TokenMixer):
    """Weights from positions alone: a subclass says what the energy is, and nothing else.

    Attributes:
        energies: modules whose sum is the energy, each with a ``table`` that can be stored in its place before
            inference. A subclass fills it, or overrides :meth:`energy`.

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

    def mix(self, query, memory, context):
        """Values mixed with the weights of their positions."""
        value, padding_mask = self.value(memory, context), context.padding_mask
        energy = self._energy(query, value.size(2), context)

        def weigh(padding_mask):
            return (normalized(energy, padding_mask) if self.softmax else energy).to(value.dtype)

        def attend(value, padding_mask):
            weights = weigh(padding_mask).expand(value.size(0), -1, -1, -1)
            return self.dropout(weights) @ value

        if not self.softmax and padding_mask is not None:
            value, padding_mask = value.masked_fill(padding_mask[:, None, :, None], 0), None
        dropping = self.training and self.dropout.p > 0
        if padding_mask is None and not dropping:
            mixed = mix_static(weigh(None), value)
        else:  # the sentences have weights of their own
            mixed = in_chunks(attend, (value, padding_mask), energy.numel(), self.outweighs(energy.size(3)))
        return mixed, weigh(padding_mask) if context.need_weights else None

    def _energy(self, query, keys, context):
        """Energies of this call's queries, (1, H, N, M), hidden pairs masked; steps take rows of one table."""
        if context.state is None:
            return self._table(query.size(1), keys, query.device, context).unsqueeze(0)
        last = context.first + query.size(1)
        columns = keys if self.place == "cross" else context.ahead
        table = context.state.keep_table(
            "energy", last, lambda: self._table(context.ahead, columns, query.device, context)
        )
        return table[None, :, context.first : last, :keys]

    def _table(self, queries, keys, device, context):
        offsets = context.offsets(range(queries), keys, device)
        memory_positions = context.positions if self.place != "cross" else context.memory_positions
        energy = self.energy(offsets, context.positions, memory_positions)
        hidden = self.hidden(offsets)
        if hidden is None:
            return energy
        return energy.masked_fill(hidden, masked_energy(energy.dtype) if self.softmax else 0)
