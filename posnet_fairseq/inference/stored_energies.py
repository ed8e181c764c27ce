"""Tables in place of energies of positions only: PosNet (Schmidt and Di Gangi, WMT 2023) Sections 4.1 and 4.2."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.mixers.bases.energies import StoredEnergy
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops.offsets import positions_read


def mixers_with_energies(model: nn.Module) -> list[PositionBasedMixer]:
    """Return the mixers of a model whose energies are stored as tables, or can be."""
    return [module for module in model.modules() if isinstance(module, PositionBasedMixer) and len(module.energies)]


def is_precomputed(model: nn.Module) -> bool:
    """Return whether a model has tables in place of energies."""
    return any(isinstance(energy, StoredEnergy) for mixer in mixers_with_energies(model) for energy in mixer.energies)


def parameter_count(model: nn.Module) -> int:
    """Return the number of parameters of a model, shared ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def has_tables(weights: Iterable[str]) -> bool:
    """Return whether the weights of a checkpoint, given by their names, hold tables in place of energies."""
    return any(name.endswith(".stored") for name in weights)


@torch.no_grad()
def precompute(model: Any) -> None:
    """Replace every energy of a model in evaluation mode by a :class:`StoredEnergy`, and drop what computed it.

    The tables serve sentences up to the model's longest positions. Word embeddings and positions that are added to them
    stay; position vectors are no longer computed for mixers, unless one without energies reads them.
    """
    stored = list(mixers_with_energies(model))
    for mixer in stored:
        store(mixer, *_where(model, mixer.place))
    others = [each for each in model.modules() if isinstance(each, TokenMixer) and each not in stored]
    if any(each.reads_positions or each.reads_memory_positions for each in others):
        return
    for side in (getattr(model, "encoder", None), getattr(model, "decoder", model)):
        if side is not None:
            side.positions.serve_words_only()


@torch.no_grad()
def store(mixer: PositionBasedMixer, queries: int, keys: int, context: MixingContext) -> None:
    """Replace every energy of one mixer in evaluation mode by a :class:`StoredEnergy`.

    `queries` and `keys` are the largest numbers of them that it will be given, `context` has their positions and γ.
    """
    at = context.scaled_positions(queries).to(mixer.out_proj.weight.device)
    energies: Any = mixer.energies
    for index, energy in enumerate(energies):
        if not isinstance(energy, StoredEnergy):
            table = energy.table(at, keys, context.positions, mixer.memory_positions(context))
            mixer.store(index, table.to(mixer.out_proj.weight.dtype, copy=True))


def _where(model: Any, place: str) -> tuple[int, int, MixingContext]:
    """Return the largest numbers of queries and keys of the mixers in a place, and a context for all of them."""
    if place != "cross":
        side = model.encoder if place == "encoder" else getattr(model, "decoder", model)
        length = side.positions.max_positions
        return length, length, MixingContext(positions=side.positions.for_mixers(length))
    encoder, decoder, ratio = model.encoder.positions, model.decoder.positions, model.decoder.length_ratio
    length = decoder.max_positions
    positions = decoder.for_mixers(positions_read(length, ratio))
    memory_positions = encoder.for_mixers(encoder.max_positions)
    return length, encoder.max_positions, MixingContext(positions, memory_positions, length_ratio=ratio)
