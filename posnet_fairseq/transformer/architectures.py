"""The architectures: every mixer times every size."""

import dataclasses
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field
from typing import Any

from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.registry import get_mixer, mixer_names, option_fields
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.transformer.model_options import language_model_fields, translation_model_fields
from posnet_fairseq.transformer.option_checks import checked_mixers
from posnet_fairseq.transformer.placement import (
    is_listed,
    listed,
    mixers_at,
    mixers_of,
    names_of,
    places,
    position_kind,
    reads_length_ratio,
)
from posnet_fairseq.transformer.sizes import GPT_SIZES, SIZES, of_arch


def archs() -> dict[str, tuple[str, str]]:
    """Return the mixer and the size of every architecture of translation models, sorted by mixer."""
    return {f"{get_mixer(name).arch}_{size}": (name, size) for name in mixer_names() for size in SIZES}


def gpt_archs() -> dict[str, tuple[str, str]]:
    """Return the mixer and the size of every architecture of language models, sorted by mixer."""
    decoders = mixer_names(place="decoder")
    return {f"gpt_{size}_{name}": (name, size) for name in decoders for size in GPT_SIZES}


def options_of(mixer: str, size: str, max_positions: int, **options: Any) -> Namespace:
    """Return complete options of a translation model, with one embedding unless `options` say otherwise.

    `mixer` is the name of one, or names for each layer of both sides, such as ``lightconv,lightconv,attention``.
    """
    positions = {"max_source_positions": max_positions, "max_target_positions": max_positions}
    mixers = _self_mixers(mixer) if "," in mixer else {}
    cfg = Namespace(**({"share_all_embeddings": True} | positions | mixers | options))
    apply_arch(cfg, "attention" if mixers else mixer, size)
    return cfg


def _self_mixers(mixers: str) -> dict[str, str]:
    """Return the options of both sides, with attention where a mixer cannot stand (FourierNet in the decoder)."""
    kinds = [get_mixer(name) for name in listed("mixers", mixers)]
    return {
        f"{side}_self_mixer": ",".join(kind.name if side in kind.places else "attention" for kind in kinds)
        for side in ("encoder", "decoder")
    }


def apply_arch(cfg: Any, mixer: str, size: str) -> None:
    """Fill the options that the user left open with those of a mixer and a size of :data:`SIZES`, and check all.

    `cfg` is a Namespace or DictConfig with :func:`translation_model_fields`; a second call changes nothing.
    """
    arch = f"{get_mixer(mixer).arch}_{size}"
    _check_task(cfg, "max_source_positions", f"{arch} is a translation model", "translation")
    shape = SIZES[size]
    values: dict[str, Any] = (
        _self_mixers(mixer)
        | {"cross_mixer": mixer if get_mixer(mixer).places == ("cross",) else "attention"}
        | shape.of_side("encoder")
        | shape.of_side("decoder")
        | {"activation_fn": "relu", "dropout": shape.dropout}
    )
    _complete(cfg, values, translation_model_fields(), lambda mixer, option: of_arch(mixer, option, shape))
    if cfg.length_ratio is not None and not reads_length_ratio(cfg):
        raise UsageError(
            f"--length-ratio {cfg.length_ratio}: --cross-mixer {cfg.cross_mixer} does not read it. Leave it out or "
            "choose another mixer there."
        )
    checked_mixers(cfg)  # refuses what makes no model, before any data is read


def apply_gpt_arch(cfg: Any, mixer: str, size: str) -> None:
    """Fill the open options of a language model of Translution (Fan et al., 2025) Table 7, and check all.

    `cfg` is a Namespace or DictConfig with :func:`language_model_fields`.
    """
    _check_task(cfg, "tokens_per_sample", f"gpt_{size}_{mixer} is a language model", "language_modeling")
    if cfg.tokens_per_sample < 1:
        raise UsageError(f"--tokens-per-sample {cfg.tokens_per_sample}: give 1 or more, such as 160.")
    shape = GPT_SIZES[size]
    # Sentences are blocks of --tokens-per-sample, unless the task limits them otherwise.
    longest = cfg.tokens_per_sample + bool(getattr(cfg, "add_bos_token", False))
    values = {"decoder_self_mixer": mixer, "max_target_positions": longest} | shape.of_side("decoder")
    values |= {"activation_fn": "gelu", "dropout": shape.dropout}
    # Translution is the paper's own here: every offset in every layer.
    _complete(cfg, values, language_model_fields(), lambda _, option: getattr(shape, option.name, option.default))
    if position_kind(cfg, "decoder") != "none":
        _fill(cfg, {"position_embedding": "learned"})
    checked_mixers(cfg)  # refuses what makes no model, before any data is read


def _check_task(cfg: Any, option: str, what: str, task: str) -> None:
    given = getattr(cfg, "task", None)
    if not isinstance(getattr(cfg, option, None), int) or given == "multilingual_translation":
        raise UsageError(f"--arch {what}, which --task {given} cannot train. Give --task {task}, or another --arch.")


def _complete(
    cfg: Any, values: Mapping[str, Any], fields: Iterable[Field], option_value: Callable[[type[TokenMixer], Field], Any]
) -> None:
    """Fill what is open from `values`, defaults and, for mixers, `option_value`; refuse what no chosen mixer reads."""
    _fill(cfg, {option.name: option.default for option in fields})
    _fill(cfg, values)
    _fill(cfg, {"attention_dropout": cfg.dropout})
    mixers, read = mixers_of(cfg), dict[str, Any]()
    for place in places(cfg):
        for mixer in dict.fromkeys(mixers_at(cfg, place)):
            for option in dataclasses.fields(mixer.Config):
                if not (option.metadata.get("first_layers") and is_listed(cfg, place)):
                    value = option_value(mixer, option)
                    # Where mixers have different defaults, it stays open, and each takes its own.
                    read[option.name] = value if read.get(option.name, value) == value else None
    for name in option_fields().keys() - read.keys():
        if (value := getattr(cfg, name)) is not None and value is not False:  # 0 is a value, too
            reason = f"none of the chosen mixers ({names_of(mixers)}) reads it. Leave it out or choose another"
            if any(hasattr(mixer.Config, name) for mixer in mixers):
                reason = "the mixer of each layer is named already. Leave it out"
            raise UsageError(f"{flag(name)} {value}: {reason}.")
    _fill(cfg, read)


def _fill(cfg: Any, values: Mapping[str, Any]) -> None:
    # A command line leaves out of its Namespace what was not given, a DictConfig has None there.
    for name, value in values.items():
        if getattr(cfg, name, None) is None:
            setattr(cfg, name, value)
