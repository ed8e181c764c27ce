"""Options that make no model are refused before any data is read."""

from typing import Any

from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.mixers.bases.mixer_settings import MOST, MixerSettings, check_count, check_probability, side_of
from posnet_fairseq.mixers.bases.positions import POSITION_EMBEDDINGS
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.schema import check_choice
from posnet_fairseq.transformer import length_ratio_option
from posnet_fairseq.transformer.activations import ACTIVATIONS
from posnet_fairseq.transformer.placement import (
    layer_mixers,
    places,
    position_kind,
    position_readers,
    reads_length_ratio,
    side_option,
)


def checked_mixers(cfg: Any) -> dict[str, list[MixerSettings]]:
    """Return the settings of a model's mixers by place; refuse options that make no model."""
    sides = dict.fromkeys(map(side_of, places(cfg)))
    for name in ("dropout", "activation_dropout", *(f"{side}_layerdrop" for side in sides)):
        check_probability(name, getattr(cfg, name))
    for side in sides:
        check_count(f"{side}_ffn_embed_dim", getattr(cfg, f"{side}_ffn_embed_dim"), MOST["ffn_embed_dim"])
    for name, allowed in (("position_embedding", POSITION_EMBEDDINGS), ("gate", GATES)):
        own = {f"{side}_{name}": getattr(cfg, f"{side}_{name}", None) for side in sides}
        for option, value in {name: getattr(cfg, name), **own}.items():
            if value is not None:
                check_choice(flag(option), str(value), allowed)
        if getattr(cfg, name) is not None and None not in own.values():
            raise UsageError(
                f"{flag(name)} {getattr(cfg, name)}: {' and '.join(map(flag, own))} are given, too, for all that it is "
                "about. Leave it out, or one of them."
            )
    if cfg.activation_fn is not None:
        check_choice("--activation-fn", str(cfg.activation_fn), ACTIVATIONS)
    mixers = layer_mixers(cfg)
    for side in sides:
        readers = position_readers(cfg, side)
        if readers and position_kind(cfg, side) == "none":
            raise UsageError(
                f"{flag(side_option(cfg, side, 'position_embedding'))} none: {readers[0].name} computes its weights "
                "from position embeddings. Choose sinusoidal or learned."
            )
    if reads_length_ratio(cfg):
        length_ratio_option.parse(cfg.length_ratio)
    return mixers
