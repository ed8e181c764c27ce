"""Weights of a checkpoint and the model that they are for: what differs is said before anything is loaded."""

import dataclasses
from collections.abc import Mapping
from os import PathLike
from typing import Any

from torch import Tensor, nn

from posnet_fairseq.mixers.bases.mixer_settings import PLACE_OPTIONS
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.schema import loads
from posnet_fairseq.transformer.length_ratio_option import UNKNOWN

# Whole numbers under this name are left alone by half precision, averaging and fairseq's moving average.
MIXERS = "mixers_version"
_OTHER_OPTIONS = (
    "Give the options it was trained with. To train a new model, give another --save-dir, and neither --restore-file "
    "nor --finetune-from-model."
)


def check_weights(model: nn.Module, weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weights without stored mixers, if they are finite and of the model's dictionaries and mixers."""
    for side, name in (("source", "encoder"), ("target", "decoder")):
        embedding = weights.get(f"{name}.embed_tokens.weight")
        if embedding is not None and hasattr(model, name):
            entries = model.get_submodule(f"{name}.embed_tokens").num_embeddings
            trained = len(embedding) if embedding.dim() else 0
            if trained != entries:
                which = f"the {side} dictionary" if hasattr(model, "encoder") else "the dictionary"
                raise UsageError(
                    f"{which} has {entries} entries, but the checkpoint was trained with {trained}. "
                    "Give the data directory that it was trained on."
                )
    # Other mixers or options, before torch complains about names and shapes.
    stored = _stored_mixers(weights)
    for name, described in describe_mixers(model).items():
        theirs = stored.get(name, described)
        if theirs != described:
            mixer: Any = model.get_submodule(name)
            raise UsageError(
                f"the checkpoint was trained with {flag(PLACE_OPTIONS[mixer.place])} {theirs}, but the options say "
                f"{described}. {_OTHER_OPTIONS}"
            )
    ours, weights = model.state_dict(), {name: tensor for name, tensor in weights.items() if name != MIXERS}
    for name, tensor in weights.items():
        if name in ours and tensor.is_floating_point() != ours[name].is_floating_point():
            raise UsageError(
                f"the checkpoint's weight {name} has numbers of the type {tensor.dtype}, the model's are "
                f"{ours[name].dtype}. Take another checkpoint."
            )
    refuse_not_finite(weights)
    return weights


def refuse_other_length_ratio(given: tuple[int, int] | None, stored: Tensor | None) -> None:
    """Refuse weights that were trained with another length ratio than the options give; None where one has none."""
    if stored is None or stored.numel() != 2 or tuple(stored.tolist()) in (UNKNOWN, given):
        return
    source, target = stored.tolist()
    if min(source, target) < 1:
        raise UsageError(f"the checkpoint holds the length ratio of {source} to {target}. Take another checkpoint.")
    if given:
        raise UsageError(
            f"the checkpoint was trained with a length ratio of {source / target:.6g}, but --length-ratio says "
            f"{given[0] / given[1]:.6g}. Leave the option out or give the same."
        )


def describe_mixers(model: nn.Module) -> dict[str, str]:
    """Return each mixer's name, and the options that differ from its defaults, as a command line has them."""
    found = {}
    for name, mixer in model.named_modules():
        if not isinstance(mixer, TokenMixer):
            continue
        gate, default = ("--cross-gate", "none") if mixer.place == "cross" else ("--gate", mixer.default_gate)
        settings: Any = mixer.settings
        chosen = [f"{gate} {settings.gate}"] * (settings.gate != default)
        for field in dataclasses.fields(settings.options):
            value = getattr(settings.options, field.name)
            if value != field.default:
                chosen.append(flag(field.name) if value is True else f"{flag(field.name)} {value}")
        found[name] = " ".join([mixer.name, *chosen])
    return found


def _stored_mixers(weights: Mapping[str, Any]) -> dict[str, str]:
    """Return names and options of the mixers that weights are of, by module; none where they do not tell."""
    if MIXERS not in weights:
        return {}
    try:
        return dict(loads(bytes(weights[MIXERS].tolist()).decode(errors="replace")))
    except (ValueError, TypeError) as error:
        raise UsageError("the checkpoint's list of mixers is damaged. Take another checkpoint.") from error


def refuse_not_finite(weights: Mapping[str, Tensor], path: str | PathLike[str] | None = None) -> None:
    """Refuse weights, by name, of which one is infinite or NaN; `path` is their origin."""
    for name, tensor in weights.items():
        # A finite sum is of finite numbers, and found in a tenth of the time; the sum of finite ones may overflow.
        if tensor.is_floating_point() and not (tensor.sum().isfinite() or tensor.isfinite().all()):
            raise UsageError(
                f"{f'{path}: ' if path else ''}the weight {name} is infinite or NaN, so the training diverged. "
                "Take an earlier checkpoint, or train again with a lower --lr or a longer --warmup-updates."
            )


def other_weights(weights: Mapping[str, Tensor], model: nn.Module) -> UsageError:
    """Return the error of the first weight that only one of both has, or whose shapes differ."""
    theirs, ours = (
        dict.fromkeys(f"{name} {tuple(tensor.shape)}" for name, tensor in side.items())
        for side in (weights, model.state_dict())
    )
    too_much = next((weight for weight in theirs if weight not in ours), None)
    missing = next((weight for weight in ours if weight not in theirs), None)
    if too_much and missing:
        difference = f"it has {too_much}, the model has {missing}"
    else:
        difference = f"it has {too_much}, which the model lacks" if too_much else f"it lacks {missing}"
    return UsageError(f"the checkpoint does not fit the options: {difference}. {_OTHER_OPTIONS}")
