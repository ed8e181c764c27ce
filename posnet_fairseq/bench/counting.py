"""Parameters of models, and multiplications of mixers."""

import dataclasses
from argparse import Namespace
from typing import Any, NamedTuple

import torch
from torch import nn

from posnet_fairseq.inference.models import NoRandomNumbers
from posnet_fairseq.inference.precompute import precompute
from posnet_fairseq.mixers.bases.operations import MixingSize
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.transformer.architectures import apply_arch
from posnet_fairseq.transformer.model import Transformer, build_transformer
from posnet_fairseq.transformer.sizes import SIZES, of_arch


def build(
    mixer: str,
    size: str,
    words: int = 43650,
    max_positions: int = 128,
    device: str = "meta",
    **options: str | bool | int,
) -> Transformer:
    """A model of a size with shared embeddings, in evaluation mode.

    Args:
        mixer: name of a mixer.
        size: one of :data:`posnet_fairseq.transformer.sizes.SIZES`.
        words: entries of the dictionary.
        max_positions: L, of source and target.
        device: of its weights; they take no memory on ``meta``.
        options: of the model, as the command line has them.
    """
    positions = {"max_source_positions": max_positions, "max_target_positions": max_positions}
    cfg = Namespace(share_all_embeddings=True, **positions, **options)
    apply_arch(cfg, mixer, size)
    with torch.device(device):
        return build_transformer(cfg, words, words).eval()


def trained_parameters(model: nn.Module) -> int:
    """The number of parameters of a model, shared ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


class Cost(NamedTuple):
    """Parameters of a model, and multiplications of a self-attention in its encoder.

    Attributes:
        parameters: of the model.
        formula: what the mixer declares; None if it declares none.
        operations: the number for one sentence; None if the mixer declares none.
    """

    parameters: int
    formula: str | None
    operations: float | None


def costs(mixer: str, size: str, words: int, length: int) -> tuple[Cost, Cost]:
    """Costs of a model in training, and with stored energies.

    Args:
        mixer, size, words: as for :func:`build`.
        length: N, tokens of the sentence.
    """
    built = _different_layers(mixer, size)
    with NoRandomNumbers():  # weights that nobody writes take no memory
        model = build(mixer, size, words, device="cpu", encoder_layers=built, decoder_layers=built)
    more = SIZES[size].layers - built
    trained = _cost(model, size, length, more)
    precompute(model)
    stored = _cost(model, size, length, more)
    return trained, stored._replace(formula=get_mixer(mixer).stored_operations_formula or trained.formula)


def _different_layers(mixer: str, size: str) -> int:
    """The number of layers on each side that differ; further ones are like the last of them."""
    cls, shape = get_mixer(mixer), SIZES[size]
    options = [field for field in dataclasses.fields(cls.Config) if field.metadata.get("first_layers")]
    first = [layers for option in options if (layers := of_arch(cls, option, shape)) is not None]
    return int(min(shape.layers, 1 + max(first, default=0)))


def _cost(model: Transformer, size: str, length: int, more: int) -> Cost:
    """The cost of a model that has `more` layers on each side, like the last."""
    encoder, decoder = model.encoder.layers, model.decoder.layers
    mixer: Any = encoder[0].self_attn
    others = more * (trained_parameters(encoder[-1]) + trained_parameters(decoder[-1]))
    try:
        operations = mixer.operations(mixing_size(mixer, length, size))
    except NotImplementedError:
        operations = None
    return Cost(trained_parameters(model) + others, mixer.operations_formula, operations)


def mixing_size(mixer: TokenMixer, length: int, size: str) -> MixingSize:
    """The sizes of self-attention over a sentence in the architectures of a size.

    Args:
        mixer: of the model.
        length: N.
        size: one of :data:`posnet_fairseq.transformer.sizes.SIZES`.
    """
    shape = SIZES[size]
    fields = dataclasses.fields(mixer.Config)
    options = {field.name: of_arch(mixer, field, shape) for field in fields}
    clip = next((options[field.name] for field in fields if field.metadata.get("reach")), 0)
    return MixingSize(length, length, shape.embed_dim, clip, options.get("alpha_dim", 0) * mixer.num_heads)
