"""Base of the mixers whose energies no token has a part in."""

from posnet_fairseq.mixers._base import TokenMixer
from posnet_fairseq.ops.masking import future_mask, masked_energy
from posnet_fairseq.ops.static_mixing import mix_static, static_weights


class PositionBasedMixer(TokenMixer):
    """Softmax over energies of positions: a subclass says what the energy is, and nothing else."""

    places = ("encoder", "decoder")
    default_gate = "gelu"
    reads_positions = True

    def energy(self, query_positions, memory_positions):
        """α̂ before masking.

        Args:
            query_positions: (N, D) vectors of positions 0 ... N - 1.
            memory_positions: (M, D) vectors of positions 0 ... M - 1.

        Returns:
            (H, N, M).
        """
        raise NotImplementedError

    def mix(self, query, memory, context):
        """Values mixed with the weights of their positions."""
        value = self.value(memory, context)
        energy = self._energy(query.size(1), value.size(2), context)
        if self.causal and context.state is None:
            future = future_mask(*energy.shape[1:], first=context.first, device=energy.device)
            energy = energy.masked_fill(future, masked_energy(energy.dtype))
        weights = static_weights(energy, context.padding_mask).to(value)
        if self.training and self.dropout.p > 0:
            # Every sentence draws its own dropout.
            weights = self.dropout(weights.expand(value.size(0), -1, -1, -1))
        return mix_static(weights, value), weights if context.need_weights else None

    def _energy(self, queries, keys, context):
        """(H, N, M) for the queries of this call; step by step, rows of a table that the steps share."""
        positions, last = context.positions, context.first + queries
        if context.state is None:
            return self.energy(positions[:queries], positions[:keys])
        table = context.state.keep_table("energy", last, lambda: self.energy(positions, positions))
        return table[:, context.first : last, :keys]
