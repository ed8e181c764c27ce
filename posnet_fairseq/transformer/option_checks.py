"""Options that make no model are refused before any data is read."""

from typing import Any

from posnet_fairseq.mixers.bases.mixer_settings import MOST, MixerSettings, check_count, check_probability, side_of
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.positions import POSITION_EMBEDDINGS
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.schema import check_choice
from posnet_fairseq.transformer import length_ratio_option
from posnet_fairseq.transformer.activations import ACTIVATIONS
from posnet_fairseq.transformer.placement import layer_mixers, mixer_at, places, position_kind, position_readers


def check(cfg: Any) -> dict[str, list[MixerSettings]]:
    """Refuse options that make no model, before any data is read; return the settings of its mixers by place."""
    sides = dict.fromkeys(map(side_of, places(cfg)))
    for name in ("dropout", "activation_dropout", *(f"{side}_layerdrop" for side in sides)):
        check_probability(name, getattr(cfg, name))
    for side in sides:
        for name in ("layers", "ffn_embed_dim"):
            check_count(f"{side}_{name}", getattr(cfg, f"{side}_{name}"), MOST[name])
    mixers = layer_mixers(cfg)
    for name, allowed in (("position_embedding", POSITION_EMBEDDINGS), ("activation_fn", ACTIVATIONS)):
        value = getattr(cfg, name)
        if value is not None:
            check_choice(flag(name), str(value), allowed)
    classes = [mixer_at(cfg, place) for place in places(cfg)]
    if cfg.shared_attention_dropout and not any(issubclass(mixer, PositionBasedMixer) for mixer in classes):
        names = ", ".join(sorted({mixer.name for mixer in classes}))
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
    return mixers
