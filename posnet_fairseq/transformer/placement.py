"""Which mixer stands where in a model, and with which settings."""

import dataclasses
import re
from typing import Any

from posnet_fairseq.mixers.bases.mixer_options import configure
from posnet_fairseq.mixers.bases.mixer_settings import PLACE_OPTIONS, MixerSettings, side_of
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.transformer.model_options import per_layer


def places(cfg: Any) -> list[str]:
    """Return where a model has mixers: a language model has no encoder and no cross-attention."""
    return [place for place, option in PLACE_OPTIONS.items() if getattr(cfg, option, None) is not None]


def mixer_at(cfg: Any, place: str) -> type[TokenMixer]:
    """Return the mixer class that the options put at `place`."""
    option = PLACE_OPTIONS[place]
    return get_mixer(getattr(cfg, option), flag(option))


def of_layer(name: str, value: Any, layer: int, layers: int) -> str:
    """Return the value of an option in one layer, from one for all layers ("16") or from one for each ("4,8,16")."""
    values = str(value).split(",")
    if not all(re.fullmatch(r"\s*-?\d+\s*", number) for number in values):
        raise UsageError(f"{name} {value}: give a whole number such as 16, or one for each layer such as 4,8,16.")
    if len(values) not in (1, layers):
        raise UsageError(
            f"{name} {value}: these are {len(values)} values for {layers} layers. Give one for all layers or one for "
            "each; encoder and decoder need the same number of layers then."
        )
    return values[layer if len(values) > 1 else 0].strip()


def gate_at(cfg: Any, place: str) -> str:
    """Return the gate of the mixer at `place`: as given, else the mixer's own; cross-attention has none of its own."""
    return str(cfg.cross_gate or "none" if place == "cross" else cfg.gate or mixer_at(cfg, place).default_gate)


def layer_mixers(cfg: Any) -> dict[str, list[MixerSettings]]:
    """Return the settings of every mixer of a model: for each place, those of its layers in their order."""
    return {
        place: [_mixer_settings(cfg, place, layer) for layer in range(getattr(cfg, f"{side_of(place)}_layers"))]
        for place in places(cfg)
    }


def _mixer_settings(cfg: Any, place: str, layer: int) -> MixerSettings:
    """Return the settings of the mixer at `place` in layer `layer`, counted from 0."""
    mixer, side = mixer_at(cfg, place), side_of(place)
    chosen = {}
    for option in dataclasses.fields(mixer.Config):
        value = getattr(cfg, option.name)
        if value is not None and per_layer(option):
            value = of_layer(flag(option.name), value, layer, getattr(cfg, f"{side}_layers"))
        if value is not None:
            chosen[option.name] = value
    settings = MixerSettings(
        mixer=mixer.name,
        place=place,
        embed_dim=getattr(cfg, f"{side}_embed_dim"),
        memory_dim=cfg.encoder_embed_dim if place == "cross" else getattr(cfg, f"{side}_embed_dim"),
        num_heads=getattr(cfg, f"{side}_attention_heads"),
        max_positions=cfg.max_source_positions if place == "encoder" else cfg.max_target_positions,
        dropout=cfg.attention_dropout,
        gate=gate_at(cfg, place),
        options=configure(mixer.Config, chosen),
        projection_bias="encoder" in places(cfg),  # of tokens; language models have none, as in the Translution paper
        shared_dropout=cfg.shared_attention_dropout,
    )
    for option in dataclasses.fields(mixer.Config):
        first = getattr(settings.options, option.name) if option.metadata.get("first_layers") else None
        if first is not None and layer >= first:
            return dataclasses.replace(settings, mixer="attention", options=get_mixer("attention").Config())
    return settings


def position_readers(cfg: Any, side: str) -> list[type[TokenMixer]]:
    """Return the mixers that want position vectors of one side of the model, self-attention's first."""
    if "cross" not in places(cfg):
        return [mixer_at(cfg, side)] * mixer_at(cfg, side).reads_positions
    cross = mixer_at(cfg, "cross")
    reads = cross.reads_positions if side == "decoder" else cross.reads_memory_positions
    return [mixer_at(cfg, side)] * mixer_at(cfg, side).reads_positions + [cross] * reads


def position_kind(cfg: Any, side: str) -> str:
    """Return the kind of position embedding of one side: as given, else the default of the mixers that read it."""
    default = (*position_readers(cfg, side), mixer_at(cfg, side))[0].position_embedding
    return str(cfg.position_embedding or default)
