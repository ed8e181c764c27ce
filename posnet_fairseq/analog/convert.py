"""A model with parts on crossbars. Mixing weights are among them: position-based mixers store them before inference."""

from collections.abc import Collection
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from posnet_fairseq.analog.crossbar_matrix import CrossbarMatrix, on_crossbars
from posnet_fairseq.analog.crossbar_parts import linears
from posnet_fairseq.analog.hardware import PARTS
from posnet_fairseq.inference.stored_energies import is_precomputed, mixers_with_energies
from posnet_fairseq.mixers.bases.context import Mixed, MixingContext
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.model import Transformer

SMALLEST_SUM = 1e-3  # of a row of weights whose largest is 1, as it is read: noise must not be divided by less


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
        renormalize: divide by the sums of rows as the crossbars read them, noise included, instead of the exact sums.
    """

    def __init__(
        self,
        mixer: PositionBasedMixer,
        queries: int,
        keys: int,
        context: MixingContext,
        configuration: Any,
        renormalize: bool = False,
    ) -> None:
        super().__init__()
        self.renormalize = renormalize
        weights = mixer.masked_energies(queries, keys, context).float()
        if mixer.softmax:
            weights = (weights - weights.amax(dim=-1, keepdim=True)).exp()
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
        mixed = self._read(value.transpose(2, 3), first, count)
        if self.weights is None:
            return mixed.transpose(2, 3)
        if self.renormalize:
            sums = self._read(driven[:, None].expand(-1, value.size(1), -1, -1), first, count)
            return (mixed / sums.clamp(min=SMALLEST_SUM)).transpose(2, 3)
        rows = self.weights[:, first : first + count, : driven.size(2)]
        sums = (driven[:, None] @ rows.mT).to(value.dtype)
        # Padding that sees no real token reads noise alone.
        return (mixed / sums).masked_fill(sums == 0, 0).transpose(2, 3)

    def _read(self, x: Tensor, first: int, count: int) -> Tensor:
        heads: Any = zip(self.heads, x.unbind(1), strict=True)
        return torch.stack([head.read(of_head, first, count) for head, of_head in heads], dim=1)


def put_on_crossbars(
    model: Transformer,
    parts: Collection[str],
    configuration: Any,
    longest: tuple[int, int],
    renormalize: bool = False,
) -> dict[str, int]:
    """Replace parts of a model by simulated crossbars.

    Args:
        model: in evaluation mode. It is changed.
        parts: of :data:`PARTS`: ``mixing``, the mixing weights of position-based mixers; ``projections``, of mixers to
            queries, keys, values, gates and out of them; ``feed-forward``; ``output``, to the scores of words. All else
            stays digital: products of queries with keys and of their weights with values, embeddings, sums, norms,
            activations.
        configuration: of the crossbars, see :meth:`Hardware.configuration`.
        longest: most tokens of a source and of a target, for which mixing weights are stored.
        renormalize: see :class:`StoredMixing`.

    Returns:
        the number of weights of each part that are on crossbars.
    """
    mixers = _checked_mixers(model) if "mixing" in parts else []
    placed = dict.fromkeys(parts, 0)
    for part in PARTS[1:]:
        if part in parts:
            for owner, name, linear in list(linears(model, part)):
                setattr(owner, name, on_crossbars(linear, configuration))
                placed[part] += linear.weight.numel()
    source, target = longest
    for mixer in mixers:
        queries, keys = (source if mixer.place == "encoder" else target), (target if mixer.causal else source)
        context = MixingContext(length_ratio=model.decoder.length_ratio if mixer.place == "cross" else (1, 1))
        mixer.stored_mixing = StoredMixing(mixer, queries, keys, context, configuration, renormalize)
        mixer.mix = MethodType(_mix, mixer)  # type: ignore[method-assign]  # of this instance only
        placed["mixing"] += mixer.num_heads * queries * keys
    return placed


def _checked_mixers(model: Transformer) -> list[PositionBasedMixer]:
    """Return the position-based mixers; refuse a model that has none, or whose energies are not stored."""
    mixers = [module for module in model.modules() if isinstance(module, PositionBasedMixer)]
    if not mixers:
        names = ", ".join(sorted({module.name for module in model.modules() if isinstance(module, TokenMixer)}))
        raise UsageError(
            f"--on mixing: the weights of {names} cannot be stored, they depend on tokens or on the sentence's length. "
            f"Give one or more of {', '.join(PARTS[1:])}, or another model."
        )
    if mixers_with_energies(model) and not is_precomputed(model):
        raise UsageError(
            "--on mixing: energies are not stored in this model. Give the model that posnet-precompute makes of it."
        )
    return mixers


def _mix(mixer: PositionBasedMixer, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
    value, stored = mixer.value(memory, context), mixer.stored_mixing
    assert isinstance(stored, StoredMixing)
    step = context.state is not None
    queries = 1 if step else query.size(1)
    return stored.mix(value, context.first, queries, context.padding_mask, mixer.causal and not step), None
