"""Tables in the place of energies that no token has a part in: PosNet (Schmidt and Di Gangi, WMT 2023) Section 4.3."""

import torch

from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.mixers.bases.energies import StoredEnergy
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.ops.offsets import scaled


def mixers_with_energies(model):
    """The mixers of a model whose energies are or could be stored, a list."""
    return [module for module in model.modules() if isinstance(module, PositionBasedMixer) and len(module.energies)]


def is_precomputed(model):
    """Whether tables are in the place of its energies already."""
    return any(isinstance(energy, StoredEnergy) for mixer in mixers_with_energies(model) for energy in mixer.energies)


def has_tables(weights):
    """The same of a checkpoint's weights, a dict by name."""
    return any(name.endswith(".stored") for name in weights)


@torch.no_grad()
def precompute(model):
    """Put a :class:`StoredEnergy` in the place of every energy, in the model itself, and drop what made them.

    The tables serve sentences up to the model's longest positions. Word embeddings and positions that are added to them
    stay; vectors of positions are no longer made for mixers.

    Args:
        model: a :class:`posnet_fairseq.models.mixer_transformer.MixerTransformer` in evaluation mode.
    """
    for mixer in mixers_with_energies(model):
        store(mixer, *_where(model, mixer.place))
    for side in (model.encoder, model.decoder):
        side.positions.serve_words_only()


@torch.no_grad()
def store(mixer, queries, keys, context):
    """The same for the energies of one mixer.

    Args:
        mixer: a :class:`PositionBasedMixer` in evaluation mode.
        queries, keys: the most that it will be given.
        context: a :class:`MixingContext` with the positions of all of them, and γ.
    """
    at = context.scaled_positions(queries).to(mixer.out_proj.weight.device)
    for index, energy in enumerate(mixer.energies):
        if not isinstance(energy, StoredEnergy):
            table = energy.table(at, keys, context.positions, mixer.memory_positions(context))
            mixer.energies[index] = StoredEnergy(table.to(mixer.out_proj.weight.dtype, copy=True), energy.reach)


def _where(model, place):
    """The most queries and keys that a mixer there meets, and a context for all of them."""
    encoder, decoder = model.encoder.positions, model.decoder.positions
    if place == "encoder":
        length = encoder.max_positions
        return length, length, MixingContext(positions=encoder.for_mixers(length))
    length = decoder.max_positions
    if place == "decoder":
        return length, length, MixingContext(positions=decoder.for_mixers(length))
    ratio = model.decoder.length_ratio
    positions = decoder.for_mixers(max(length, scaled(length - 1, ratio) + 1))
    memory_positions = encoder.for_mixers(encoder.max_positions)
    return length, encoder.max_positions, MixingContext(positions, memory_positions, length_ratio=ratio)
