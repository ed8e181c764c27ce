"""A mixer by itself, for any PyTorch model."""

import math
from dataclasses import fields
from inspect import signature
from numbers import Integral
from typing import Any

from posnet_fairseq.mixers.bases.mixer_options import configure
from posnet_fairseq.mixers.bases.mixer_settings import PLACES, MixerSettings
from posnet_fairseq.mixers.bases.positions import POSITION_EMBEDDINGS, Positions
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.registry import get_mixer, mixer_names, reserve_options
from posnet_fairseq.shared.errors import UsageError, called_from_python, nearest
from posnet_fairseq.shared.schema import check_choice

__all__ = ["build_mixer", "mixer_names"]

# Names of the models' options that are arguments of another name here.
_ARGUMENTS = {
    "max_source_positions": "max_positions",
    "max_target_positions": "max_positions",
    "cross_gate": "gate",
    "attention_dropout": "dropout",
    **{f"{side}_embed_dim": "embed_dim" for side in PLACES},
    **{f"{side}_attention_heads": "num_heads" for side in PLACES},
    **{f"{side}_gate": "gate" for side in PLACES},
}


def build_mixer(
    name: str,
    embed_dim: int,
    num_heads: int,
    max_positions: int | None = None,
    *,
    causal: bool = False,
    cross_attention: bool = False,
    memory_dim: int | None = None,
    dropout: float = 0.0,
    gate: str | None = None,
    position_embedding: str | None = None,
    bias: bool = True,
    grid: tuple[int, int] | None = None,
    extra_tokens: int = 0,
    **options: Any,
) -> TokenMixer:
    """Build a token mixer with random weights.

    Args:
        name: one of :func:`posnet_fairseq.mixer_names`.
        embed_dim: D, width of the queries and of the result.
        num_heads: H, which must divide D.
        max_positions: L, the longest sequence of queries; also of memory tokens where their positions are learned. On
            a grid it is the number of tokens; leave it out.
        causal: mask future positions, for decoders.
        cross_attention: mix the tokens of a memory instead of the queries.
        memory_dim: width of the memory's tokens in cross-attention. Default: D.
        dropout: probability that a mixing weight is dropped in training; also that of the position vectors. No effect
            in ``fouriernet`` and the recurrent mixers.
        gate: ``none``, ``gelu`` (PosNet Eq. 4) or ``glu``. Default: the mixer's own; ``none`` in cross-attention.
        position_embedding: ``sinusoidal`` or ``learned`` vectors for a mixer that reads positions, which it then owns.
            ``none``: each call gives them. Default: the mixer's own.
        bias: whether projections of tokens to queries, keys and values have biases; others always have them.
            Recurrent mixers other than ``linear_attention`` have none.
        grid: rows and columns of cells, R and C, for self-attention between all tokens of a grid: ``x`` has E + R·C
            tokens, the cells row by row. A padding mask may then be True at any of them. Default: tokens are a
            sentence.
        extra_tokens: E, tokens in front of a grid's cells that have no place, such as a class token.
        options: the mixer's own, such as ``clip_distance=16``; ``posnet-mixers NAME --options`` lists them.

    Raises:
        UsageError: an argument is out of range, or one that this mixer does not read.

    Example::

        mixer = build_mixer("rposnet", embed_dim=512, num_heads=8, max_positions=256, causal=True, clip_distance=16)
        y = mixer(x)  # (B, N, 512) to (B, N, 512)
    """
    cls = get_mixer(name, "name")
    for argument, value in (("causal", causal), ("cross_attention", cross_attention), ("bias", bias)):
        if not isinstance(value, bool):
            raise UsageError(f"{argument} {value!r}: give True or False.")
    if causal and cross_attention:
        raise UsageError("causal True: cross-attention sees the whole memory. Leave out one of the two.")
    place = "cross" if cross_attention else "decoder" if causal else "encoder"
    if grid is None and not cls.places:
        raise UsageError(f"name {name}: this is a mixer of grids alone. Give grid, such as (14, 14).")
    if grid is None and place not in cls.places:
        given = f"causal {causal}" if causal else f"cross_attention {cross_attention}"
        fitting = ", ".join(mixer_names(place=place))
        raise UsageError(f"{given}: {name} stands in {' and '.join(cls.places)} only. Choose one of: {fitting}.")
    if grid is None and max_positions is None and not extra_tokens:
        raise UsageError("max_positions is missing: give the most tokens that a sentence may have, such as 256.")
    kind = cls.position_embedding if position_embedding is None else position_embedding
    check_choice("position_embedding", kind, POSITION_EMBEDDINGS)
    reads_memory_positions = cross_attention and cls.reads_memory_positions
    if position_embedding not in (None, "none") and not (cls.reads_positions or reads_memory_positions):
        raise UsageError(f"position_embedding {position_embedding}: {name} reads no positions. Leave it out.")
    if (
        isinstance(grid, tuple | list)
        and max_positions is None
        and all(isinstance(size, Integral) for size in (*grid, extra_tokens))
    ):
        max_positions = math.prod(grid) + extra_tokens
    config = cls.Config if grid is None or cls.GridConfig is None else cls.GridConfig
    defaults = _of_single_mixers(cls, config)
    _refuse_unread(cls, [*defaults], grid is not None, options)
    with called_from_python(**_ARGUMENTS):
        settings = MixerSettings(
            mixer=name,
            place=place,
            embed_dim=embed_dim,
            memory_dim=embed_dim if memory_dim is None else memory_dim,
            num_heads=num_heads,
            max_positions=max_positions,  # type: ignore[arg-type]  # None only with a grid that is refused
            dropout=dropout,
            gate=gate if gate is not None else "none" if cross_attention else cls.default_gate,
            options=configure(config, defaults | options),
            projection_bias=bias,
            grid=grid,
            extra_tokens=extra_tokens,
        )
    mixer = cls(settings)
    if kind != "none":
        shared: Any = {"dropout": dropout, "option": "max_positions", "for_mixers": True}
        if cls.reads_positions:
            mixer.own_positions = Positions(kind, settings.max_positions, embed_dim, **shared)
        if reads_memory_positions:
            mixer.own_memory_positions = Positions(kind, settings.max_positions, settings.memory_dim, **shared)
    return mixer


reserve_options(name for name, each in signature(build_mixer).parameters.items() if each.kind is not each.VAR_KEYWORD)


def _of_single_mixers(cls: type[TokenMixer], config: type) -> dict[str, Any]:
    """Return the options of a mixer that are not about the layers of a model, with the architectures' values."""
    options = (field for field in fields(config) if not field.metadata.get("first_layers"))
    return {option.name: cls.arch_options.get(option.name, option.default) for option in options}


def _refuse_unread(cls: type[TokenMixer], known: list[str], on_grid: bool, options: dict[str, Any]) -> None:
    elsewhere = _of_single_mixers(cls, cls.Config if on_grid else cls.GridConfig or cls.Config)
    for name, value in options.items():
        if name not in known and name in elsewhere:
            where, fix = ("in sentences", "Leave it out.") if on_grid else ("on grids", "Give grid, or leave it out.")
            raise UsageError(f"{name} {value}: {cls.name} reads it {where} only. {fix}")
        if name not in known:
            reads = f"it reads {', '.join(known)}" if known else "it has no options"
            raise UsageError(f"{name} {value}: {cls.name} does not read it; {reads}.{nearest(name, known)}")
