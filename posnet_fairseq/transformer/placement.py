"""Which mixer stands where in a model, and with which settings."""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Iterable
from typing import Any

from posnet_fairseq.mixers.bases.mixer_options import configure
from posnet_fairseq.mixers.bases.mixer_settings import MOST, PLACE_OPTIONS, MixerSettings, check_count, side_of
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError, about, flag
from posnet_fairseq.transformer.model_options import per_layer


def places(cfg: Any) -> list[str]:
    """Return where a model has mixers: a language model has no encoder and no cross-attention."""
    return [place for place, option in PLACE_OPTIONS.items() if getattr(cfg, option, None) is not None]


def listed(name: str, value: Any) -> list[str]:
    """Return the values of an option between commas."""
    values = [text.strip() for text in str(value).split(",")]
    if len(values) > 1 and "" in values:
        raise UsageError(f"{name} {value}: a value beside a comma is missing. Give one for each layer.")
    return values


def by_layer(name: str, value: Any, layers: int, advice: str = "") -> list[str]:
    """Return the value of an option in each layer, from one for all layers ("16") or one for each ("4,8,16")."""
    values = listed(name, value)
    if len(values) not in (1, layers):
        raise UsageError(
            f"{name} {value}: these are {len(values)} values for {layers} layers. Give one for all layers or one for "
            f"each{advice}."
        )
    return values * layers if len(values) == 1 else values


def in_short(values: Iterable[str]) -> str:
    """Return one text for the values of all layers: ``rposnet``, or ``rposnet×2+attention`` where they differ."""
    runs = [(value, len([*same])) for value, same in itertools.groupby(values)]
    if len(runs) == 1:
        return runs[0][0]
    return "+".join(f"{value}×{times}" if times > 1 else value for value, times in runs)


def is_listed(cfg: Any, place: str) -> bool:
    """Return whether the option of a place names a mixer for each layer."""
    return "," in str(getattr(cfg, PLACE_OPTIONS[place]))


def mixers_at(cfg: Any, place: str) -> list[type[TokenMixer]]:
    """Return the mixer class of each layer at `place`; where one is for the first layers only, attention follows."""
    option, side = PLACE_OPTIONS[place], side_of(place)
    layers = getattr(cfg, f"{side}_layers")
    check_count(f"{side}_layers", layers, MOST["layers"])
    names = by_layer(flag(option), getattr(cfg, option), layers)
    if is_listed(cfg, place):
        mixers = []
        for number, name in enumerate(names, start=1):
            with about(f"layer {number} of the {side}"):
                mixers.append(get_mixer(name, flag(option)))
        return mixers
    mixer = get_mixer(names[0], flag(option))
    limits = [limit.name for limit in dataclasses.fields(mixer.Config) if limit.metadata.get("first_layers")]
    chosen = configure(mixer.Config, {name: option_value(cfg, mixer, name) for name in limits})
    first = min((number for name in limits if (number := getattr(chosen, name)) is not None), default=layers)
    return [mixer if layer < first else get_mixer("attention") for layer in range(layers)]


def mixers_of(cfg: Any) -> list[type[TokenMixer]]:
    """Return the mixer classes of a model, each once."""
    return list(dict.fromkeys(mixer for place in places(cfg) for mixer in mixers_at(cfg, place)))


def names_of(mixers: Iterable[type[TokenMixer]]) -> str:
    """Return the names of mixers for a sentence."""
    return ", ".join(sorted({mixer.name for mixer in mixers}))


def reads_length_ratio(cfg: Any) -> bool:
    """Return whether a cross-attention depends on γ."""
    return "cross" in places(cfg) and any(mixer.reads_length_ratio for mixer in mixers_at(cfg, "cross"))


def option_value(cfg: Any, mixer: type[TokenMixer], name: str) -> Any:
    """Return an option as given; if open, since mixers differ in it, as architectures of translation models set it."""
    value = getattr(cfg, name)
    return mixer.arch_options.get(name) if value is None and "encoder" in places(cfg) else value


def side_option(cfg: Any, side: str, name: str) -> str:
    """Return the option that holds on one side: that of the side, such as ``encoder_gate``, if given, else `name`."""
    own = f"{side}_{name}"
    return name if getattr(cfg, own, None) is None else own


def gates_at(cfg: Any, place: str) -> list[str]:
    """Return the gate of each layer at `place`: as given, else the mixer's own; cross-attention has none of its own."""
    given = cfg.cross_gate or "none" if place == "cross" else getattr(cfg, side_option(cfg, place, "gate"))
    return [str(given or mixer.default_gate) for mixer in mixers_at(cfg, place)]


def layer_mixers(cfg: Any) -> dict[str, list[MixerSettings]]:
    """Return the settings of every mixer of a model: for each place, those of its layers in their order."""
    return {place: _settings_at(cfg, place) for place in places(cfg)}


def _settings_at(cfg: Any, place: str) -> list[MixerSettings]:
    listed, settings = is_listed(cfg, place), []
    for layer, (mixer, gate) in enumerate(zip(mixers_at(cfg, place), gates_at(cfg, place), strict=True)):
        with about(f"layer {layer + 1} of the {side_of(place)}") if listed else contextlib.nullcontext():
            settings.append(_mixer_settings(cfg, place, layer, mixer, gate))
    return settings


def _mixer_settings(cfg: Any, place: str, layer: int, mixer: type[TokenMixer], gate: str) -> MixerSettings:
    """Return the settings of the mixer at `place` in layer `layer`, counted from 0."""
    side, chosen = side_of(place), {}
    layers = getattr(cfg, f"{side}_layers")
    for option in dataclasses.fields(mixer.Config):
        value = option_value(cfg, mixer, option.name)
        if value is None or (option.metadata.get("first_layers") and is_listed(cfg, place)):
            continue
        chosen[option.name] = _of_layer(option.name, value, layer, layers) if per_layer(option) else value
    return MixerSettings(
        mixer=mixer.name,
        place=place,
        embed_dim=getattr(cfg, f"{side}_embed_dim"),
        memory_dim=cfg.encoder_embed_dim if place == "cross" else getattr(cfg, f"{side}_embed_dim"),
        num_heads=getattr(cfg, f"{side}_attention_heads"),
        max_positions=cfg.max_source_positions if place == "encoder" else cfg.max_target_positions,
        dropout=cfg.attention_dropout,
        gate=gate,
        options=configure(mixer.Config, chosen),
        projection_bias="encoder" in places(cfg),  # of tokens; language models have none, as in the Translution paper
    )


def _of_layer(name: str, value: Any, layer: int, layers: int) -> str:
    """Return the number that an option has in one layer."""
    if not all(re.fullmatch(r"\s*-?\d+\s*", number) for number in str(value).split(",")):
        raise UsageError(f"{flag(name)} {value}: give a whole number such as 16, or one for each layer such as 4,8,16.")
    advice = "; encoder and decoder need the same number of layers then"
    return by_layer(flag(name), value, layers, advice)[layer]


def position_readers(cfg: Any, side: str) -> list[type[TokenMixer]]:
    """Return the mixers that want position vectors of one side of the model, self-attention's first."""
    own = [mixer for mixer in mixers_at(cfg, side) if mixer.reads_positions]
    if "cross" not in places(cfg):
        return own
    reads = "reads_positions" if side == "decoder" else "reads_memory_positions"
    return own + [mixer for mixer in mixers_at(cfg, "cross") if getattr(mixer, reads)]


def position_kind(cfg: Any, side: str) -> str:
    """Return the kind of position embedding of one side.

    It is as given, else the default of the first mixer that reads positions, else that of the first layer's.
    """
    default = (*position_readers(cfg, side), *mixers_at(cfg, side))[0].position_embedding
    return str(getattr(cfg, side_option(cfg, side, "position_embedding")) or default)
