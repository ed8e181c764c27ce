"""Parameters of models, and multiplications of mixers as formulas."""

import dataclasses
from argparse import Namespace
from typing import Any, NamedTuple

import sympy
import torch
from torch import nn

from posnet_fairseq.inference.precompute import precompute
from posnet_fairseq.mixers.bases.operations import MixingSize
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.transformer.architectures import apply_arch
from posnet_fairseq.transformer.model import Transformer, build_transformer
from posnet_fairseq.transformer.sizes import SIZES, of_arch

# Of formulas: K̂ = 2K + 1 rows of a table, N tokens, width D, and E = H·C, the width of α-Translution's relative part.
SYMBOLS = sympy.symbols("K̂ N D E")


def build(
    mixer: str, size: str, words: int = 43650, max_positions: int = 128, **options: str | bool | int
) -> Transformer:
    """A model of a size with shared embeddings, in evaluation mode and without memory for its weights.

    Args:
        mixer: name of a mixer.
        size: one of :data:`posnet_fairseq.transformer.sizes.SIZES`.
        words: entries of the dictionary.
        max_positions: L, of source and target.
        options: of the model, as the command line has them.
    """
    positions = {"max_source_positions": max_positions, "max_target_positions": max_positions}
    cfg = Namespace(share_all_embeddings=True, **positions, **options)
    apply_arch(cfg, mixer, size)
    with torch.device("meta"):
        return build_transformer(cfg, words, words).eval()


def trained_parameters(model: nn.Module) -> int:
    """The number of parameters of a model, shared ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


class Cost(NamedTuple):
    """Parameters of a model, and multiplications of a self-attention in its encoder.

    Attributes:
        parameters: of the model.
        formula: as in :func:`as_text`; None if the mixer declares none.
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
    model = build(mixer, size, words)
    trained = _cost(model, size, length)
    precompute(model)
    return trained, _cost(model, size, length)


def _cost(model: Transformer, size: str, length: int) -> Cost:
    layers: Any = model.encoder.layers
    mixer, parameters = layers[0].self_attn, trained_parameters(model)
    operations = formula(mixer)
    if operations is None:
        return Cost(parameters, None, None)
    return Cost(parameters, as_text(operations), mixer.operations(mixing_size(mixer, length, size)))


def formula(mixer: TokenMixer) -> sympy.Expr | None:
    """The multiplications of a mixer for one sentence of N tokens, in :data:`SYMBOLS`; None if it declares none."""
    rows, tokens, width, narrow = SYMBOLS
    try:
        return mixer.operations(MixingSize(tokens, tokens, width, (rows - 1) / 2, narrow))
    except NotImplementedError:
        return None


def as_text(operations: sympy.Expr) -> str:
    """A formula as "2N²D + 4ND²", without the terms that do not grow with N."""
    text = ""
    for powers, factor in sorted(sympy.Poly(operations, *SYMBOLS).terms(), key=_order):
        if powers[1]:
            number, symbols = float(factor), zip(SYMBOLS, powers, strict=True)
            text += (" - " if number < 0 else " + ") + ("" if abs(number) == 1 else f"{abs(number):g}")
            text += "".join(f"{symbol}{'²' * (power == 2)}" for symbol, power in symbols if power)
    return text.removeprefix(" + ")


def _order(term: tuple[tuple[int, int, int, int], sympy.Expr]) -> tuple[bool, int, int, int, int]:
    """Terms of D alone first, higher powers first."""
    (rows, tokens, width, narrow), _ = term
    return narrow > 0, -rows, -tokens, width if narrow else -width, -narrow


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
