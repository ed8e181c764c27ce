"""Mixing weights on crossbars: position-based mixers multiply values by weights that were stored before inference."""

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from posnet_fairseq.analog.crossbar_matrix import CrossbarMatrix
from posnet_fairseq.mixers.bases.context import Mixed, MixingContext
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer

SMALLEST_SUM = 1e-3  # of a row of weights whose largest is 1: noise must not be divided by less


class StoredMixing(nn.Module):
    """Mixes as a :class:`PositionBasedMixer` does, with its weights on crossbars, one matrix for each head.

    Stored is exp(α̂_nm - max_m α̂_nm) where weights are a softmax, for all positions n and m at once: the softmax of a
    shorter sentence is its first rows and columns, and a digital division by the sums of these rows. Where weights are
    the energies themselves, they are stored as they are. Values of padding and of the future are not on the input
    lines. A decoder's full pass reads row after row, as decoding does.

    Args:
        mixer: in evaluation mode, with stored energies if it has energies.
        queries, keys: the largest numbers of them.
        context: positions of all of them, and γ.
        configuration: of the crossbars.
        renormalise: divide by the sums of rows as the crossbars read them, noise included, instead of the exact sums.
    """

    def __init__(
        self,
        mixer: PositionBasedMixer,
        queries: int,
        keys: int,
        context: MixingContext,
        configuration: Any,
        renormalise: bool = False,
    ) -> None:
        super().__init__()
        self.renormalise = renormalise
        weights = stored_weights(mixer, queries, keys, context)
        self.weights: Tensor | None
        self.register_buffer("weights", weights if mixer.softmax else None, persistent=False)
        self.heads = nn.ModuleList(CrossbarMatrix(head, configuration) for head in weights)

    def mix(self, value: Tensor, first: int, queries: int, padding_mask: Tensor | None, causal: bool) -> Tensor:
        """Return mixed values, (B, H, N, d), of values (B, H, M, d) for queries from the first position on."""
        driven = value.new_ones(value.size(0), 1, value.size(2))
        if padding_mask is not None:
            driven = driven.masked_fill(padding_mask[:, None], 0)
            value = value.masked_fill(padding_mask[:, None, :, None], 0)
        if not causal or queries == 1:
            return self._rows(value, driven, first, queries)
        rows = [self._rows(value[:, :, : n + 1], driven[..., : n + 1], n, 1) for n in range(first, first + queries)]
        return torch.cat(rows, dim=2)

    def _rows(self, value: Tensor, driven: Tensor, first: int, count: int) -> Tensor:
        """Return rows of products, divided by their sums. `driven`: (B, 1, M), 1 at real tokens and 0 at padding."""
        inputs = value.transpose(2, 3)
        mixed = torch.stack([head.read(x, first, count) for head, x in self._by_head(inputs)], dim=1)
        if self.weights is None:
            return mixed.transpose(2, 3)
        if self.renormalise:
            ones = driven[:, None].expand(-1, value.size(1), -1, -1)
            sums = torch.stack([head.read(x, first, count) for head, x in self._by_head(ones)], dim=1)
        else:
            rows = self.weights[:, first : first + count, : driven.size(2)]
            sums = (driven[:, None] @ rows.mT).to(value.dtype)
        return (mixed / sums.clamp(min=SMALLEST_SUM)).transpose(2, 3)

    def _by_head(self, x: Tensor) -> Any:
        return zip(self.heads, x.unbind(1), strict=True)


def stored_weights(mixer: PositionBasedMixer, queries: int, keys: int, context: MixingContext) -> Tensor:
    """Return what crossbars store, (H, N, M): see :class:`StoredMixing`."""
    offsets = context.offsets(queries, keys)
    energy = mixer.energy(offsets, context.positions, mixer.memory_positions(context))
    hidden = mixer.hidden(offsets)
    if not mixer.softmax:
        return energy.float() if hidden is None else energy.float().masked_fill(hidden, 0)
    if hidden is not None:
        energy = energy.masked_fill(hidden, float("-inf"))
    return (energy.float() - energy.float().amax(dim=-1, keepdim=True)).exp()


def put_mixing_on_crossbars(mixer: PositionBasedMixer, stored: StoredMixing) -> None:
    """Let a mixer take its mixed values from crossbars."""
    mixer.stored_mixing = stored
    mixer.mix = MethodType(_mix, mixer)  # type: ignore[method-assign]  # of this instance only


def _mix(mixer: PositionBasedMixer, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
    value, stored = mixer.value(memory, context), mixer.stored_mixing
    assert isinstance(stored, StoredMixing)
    step = context.state is not None
    queries = 1 if step else query.size(1)
    return stored.mix(value, context.first, queries, context.padding_mask, mixer.causal and not step), None
