"""Options that make no model are refused before any data is read."""

from collections.abc import Iterable
from numbers import Real
from typing import Any

from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.positions import POSITION_EMBEDDINGS
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.transformer import length_ratio_option
from posnet_fairseq.transformer.activations import ACTIVATIONS
from posnet_fairseq.transformer.model_options import PLACE_OPTIONS
from posnet_fairseq.transformer.placement import (
    mixer_at,
    mixer_settings,
    places,
    position_kind,
    position_readers,
    side_of,
)

# Far beyond any model that was ever trained. More is a slip, or a checkpoint that is made to fill the memory.
MOST = {"layers": 1000, "embed_dim": 2**15, "ffn_embed_dim": 2**17, "attention_heads": 2**15}
MOST_POSITIONS = 10**6
MOST_PARAMETERS = 10**11


def check(cfg: Any) -> None:
    """Refuse options that make no model, before any data is read.

    Raises:
        UsageError: with the option, the value, and what is allowed.
    """
    sides = dict.fromkeys(map(side_of, places(cfg)))
    for place in places(cfg):
        mixer = mixer_at(cfg, place)
        if place not in mixer.places:
            fitting = [name for name in mixer_names() if place in get_mixer(name).places]
            raise UsageError(
                f"{flag(PLACE_OPTIONS[place])} {mixer.name}: this mixer cannot stand there. "
                f"Choose one of: {', '.join(fitting)}."
            )
    layerdrops = [f"{side}_layerdrop" for side in sides]
    for name in ("dropout", "attention_dropout", "activation_dropout", *layerdrops):
        if not isinstance(getattr(cfg, name), Real) or not 0 <= getattr(cfg, name) < 1:
            raise UsageError(f"{flag(name)} {getattr(cfg, name)}: give 0 or more and less than 1.")
    for side in sides:
        for name, most in MOST.items():
            _check_count(cfg, f"{side}_{name}", most)
        limit = "max_source_positions" if side == "encoder" else "max_target_positions"
        _check_count(cfg, limit, MOST_POSITIONS, ", such as 128")
        width, heads = getattr(cfg, f"{side}_embed_dim"), getattr(cfg, f"{side}_attention_heads")
        if width % heads:
            raise UsageError(
                f"--{side}-attention-heads {heads}: the width {width} of the {side} does not divide by it. "
                f"Choose a number of heads that does, or change --{side}-embed-dim."
            )
    _check_parameters(cfg, sides)
    choices: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("gate", GATES),
        ("cross_gate", GATES),
        ("position_embedding", POSITION_EMBEDDINGS),
        ("activation_fn", tuple(ACTIVATIONS)),
    )
    for name, allowed in choices:
        value = getattr(cfg, name, None)
        if value is not None and str(value) not in allowed:
            raise UsageError(f"{flag(name)} {value}: choose one of {', '.join(allowed)}.")
    for place in places(cfg):
        for layer in range(getattr(cfg, f"{side_of(place)}_layers")):
            mixer_at(cfg, place).check(mixer_settings(cfg, place, layer))
    mixers = [mixer_at(cfg, place) for place in places(cfg)]
    if cfg.shared_attention_dropout and not any(issubclass(mixer, PositionBasedMixer) for mixer in mixers):
        names = ", ".join(sorted({mixer.name for mixer in mixers}))
        raise UsageError(
            f"--shared-attention-dropout: none of the chosen mixers ({names}) has weights that sentences share. "
            "Leave it out or choose another."
        )
    for side in sides:
        readers = position_readers(cfg, side)
        if readers and position_kind(cfg, side) == "none":
            raise UsageError(
                f"--position-embedding none: {readers[0].name} computes its weights from position embeddings. "
                "Choose sinusoidal or learned."
            )
    if "cross" in places(cfg) and mixer_at(cfg, "cross").reads_length_ratio:
        length_ratio_option.parse(cfg.length_ratio)


def _check_count(cfg: Any, name: str, most: int, example: str = "") -> None:
    value = getattr(cfg, name)
    if not isinstance(value, int):
        raise UsageError(f"{flag(name)} {value}: give a whole number{example}.")
    if value < 1:
        raise UsageError(f"{flag(name)} {value}: give 1 or more{example}.")
    if value > most:
        raise UsageError(f"{flag(name)} {value}: give at most {most}{example}.")


def _check_parameters(cfg: Any, sides: Iterable[str]) -> None:
    """Refuse sizes that are possible one by one and absurd together."""
    for side in sides:
        layers, width, inner = (getattr(cfg, f"{side}_{name}") for name in ("layers", "embed_dim", "ffn_embed_dim"))
        parameters = layers * 2 * width * (width + inner)  # every layer has two matrices of each kind, at least
        if parameters > MOST_PARAMETERS:
            raise UsageError(
                f"--{side}-layers {layers}, --{side}-embed-dim {width} and --{side}-ffn-embed-dim {inner} make "
                f"{parameters:.0e} parameters or more. Choose smaller ones: the limit is {MOST_PARAMETERS:.0e}."
            )
