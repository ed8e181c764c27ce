"""Weights of a checkpoint and the model that they are for: what differs is said before anything is loaded."""

import dataclasses
import json
from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from posnet_fairseq.inference.precompute import mixers_with_energies
from posnet_fairseq.mixers.bases.energies import StoredEnergy
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.transformer.length_ratio_option import UNKNOWN

# Whole numbers under this name are left alone by half precision, averaging and fairseq's moving average.
MIXERS = "mixers_version"
_PLACE_FLAGS = {"encoder": "--encoder-self-mixer", "decoder": "--decoder-self-mixer", "cross": "--cross-mixer"}


def check_weights(model: nn.Module, weights: Mapping[str, Any]) -> dict[str, Any]:
    """The weights without the stored names and options of mixers, if they are those of the model's dictionaries and
    mixers, and finite.

    Args:
        model: with a ``decoder``, and in translation models an ``encoder``.
        weights: tensors by name.

    Raises:
        UsageError: they were trained with a dictionary of another size, with other mixers or options, are of another
            type than the model's, infinite or NaN.
    """
    _refuse_other_sizes(model, weights)
    _refuse_other_mixers(model, weights)
    ours, weights = model.state_dict(), without_mixer_versions(weights)
    for name, tensor in weights.items():
        if name in ours and tensor.is_floating_point() != ours[name].is_floating_point():
            raise UsageError(
                f"the checkpoint's weight {name} has numbers of the type {tensor.dtype}, the model's are "
                f"{ours[name].dtype}. Take another checkpoint."
            )
    refuse_not_finite(weights)
    return weights


def fitting_weights(sketch: nn.Module, weights: Mapping[str, Any]) -> dict[str, Any]:
    """The weights that :func:`check_weights` returns, if they also have the names and shapes of the model's.

    Args:
        sketch: the model on the meta device, where it takes no memory. It is changed.
        weights: tensors by name.

    Raises:
        UsageError: see :func:`check_weights`; or a weight is missing, too much, or of another shape.
    """
    weights = check_weights(sketch, weights)
    try:
        sketch.load_state_dict({name: weight.to("meta") for name, weight in weights.items()})
    except RuntimeError as error:
        raise UsageError(f"the checkpoint does not fit the options: {first_difference(weights, sketch)}") from error
    _refuse_other_tables(sketch)
    return weights


def refuse_other_length_ratio(given: tuple[int, int] | None, stored: Tensor | None) -> None:
    """Refuse weights that were trained with another length ratio than the options give.

    Args:
        given: source and target tokens, None if the options leave it open.
        stored: the same, as the weights have it; None if they have none.

    Raises:
        UsageError: the length ratios differ, or the stored one is none.
    """
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


def _refuse_other_sizes(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    for side, name in (("source", "encoder"), ("target", "decoder")):
        stored = weights.get(f"{name}.embed_tokens.weight")
        if stored is not None and hasattr(model, name):
            entries = model.get_submodule(f"{name}.embed_tokens").num_embeddings
            trained = len(stored) if stored.dim() else 0
            if trained != entries:
                which = f"the {side} dictionary" if hasattr(model, "encoder") else "the dictionary"
                raise UsageError(
                    f"{which} has {entries} entries, but the checkpoint was trained with {trained}. "
                    "Give the data directory that it was trained on."
                )


def describe_mixers(model: nn.Module) -> str:
    """Names and options of a model's mixers by module, as JSON."""
    return json.dumps({name: _description(mixer) for name, mixer in _mixers(model).items()})


def _description(mixer: TokenMixer) -> str:
    """Return the mixer's name, and the options that differ from its defaults, as a command line has them."""
    gate, default = ("--cross-gate", "none") if mixer.place == "cross" else ("--gate", mixer.default_gate)
    settings: Any = mixer.settings
    chosen = [f"{gate} {settings.gate}"] * (settings.gate != default)
    for field in dataclasses.fields(settings.options):
        value = getattr(settings.options, field.name)
        if value != field.default:
            chosen.append(flag(field.name) if value is True else f"{flag(field.name)} {value}")
    return " ".join([mixer.name, *chosen])


def _mixers(model: nn.Module) -> dict[str, TokenMixer]:
    return {name: module for name, module in model.named_modules() if isinstance(module, TokenMixer)}


def _refuse_other_mixers(model: nn.Module, weights: Mapping[str, Any]) -> None:
    """Refuse the weights of other mixers or options before torch complains about names and shapes."""
    stored = _stored_mixers(weights)
    for name, mixer in _mixers(model).items():
        ours = _description(mixer)
        theirs = stored.get(name, ours)
        if theirs != ours:
            raise UsageError(
                f"the checkpoint was trained with {_PLACE_FLAGS[mixer.place]} {theirs}, but the options say "
                f"{ours}. Give the options it was trained with, or another --save-dir to train a new "
                "model."
            )


def _stored_mixers(weights: Mapping[str, Any]) -> dict[str, str]:
    """Names and options of the mixers that a checkpoint's weights are of, by module; older ones have one for each."""

    def text(codes: torch.Tensor) -> str:
        return bytes(codes.tolist()).decode(errors="replace")

    end = ".mixer_version"
    older = {name.removesuffix(end): text(codes) for name, codes in weights.items() if name.endswith(end)}
    try:
        return dict(json.loads(text(weights[MIXERS]))) if MIXERS in weights else older
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError("the checkpoint's list of mixers is damaged. Take another checkpoint.") from error


def without_mixer_versions(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Weights without the stored names and options of mixers."""
    return {name: tensor for name, tensor in weights.items() if not name.endswith((MIXERS, ".mixer_version"))}


def refuse_not_finite(weights: Mapping[str, Tensor], path: str | PathLike[str] | None = None) -> None:
    """Check that all weights are finite.

    Args:
        weights: tensors by name.
        path: their origin, named in the error.

    Raises:
        UsageError: a weight is infinite or NaN.
    """
    for name, tensor in weights.items():
        # A finite sum is of finite numbers, and found in a tenth of the time; the sum of finite ones may overflow.
        if tensor.is_floating_point() and not (tensor.sum().isfinite() or tensor.isfinite().all()):
            raise UsageError(
                f"{f'{path}: ' if path else ''}the weight {name} is infinite or NaN, so the training diverged. "
                "Take an earlier checkpoint, or train again with a lower --lr or a longer --warmup-updates."
            )


def first_difference(weights: Mapping[str, Tensor], model: nn.Module) -> str:
    """A sentence on the first weight that only one of both has, or whose shapes differ."""
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
    return f"{difference}. Give the options it was trained with, or another --save-dir to train a new model."


def _refuse_other_tables(model: nn.Module) -> None:
    """Refuse tables in place of energies that are not of the mixer's heads and offsets: they replace any others."""
    for mixer in mixers_with_energies(model):
        for energy in mixer.energies:
            if not isinstance(energy, StoredEnergy):
                continue
            shape, reach = tuple(energy.stored.shape), energy.reach
            columns = None if reach is None else 2 * reach + 1
            if len(shape) != 3 or shape[0] != mixer.num_heads or columns not in (None, shape[2]) or 0 in shape:
                wanted = f"{mixer.num_heads} heads" + (f" and {columns} offsets" if columns else "")
                raise UsageError(
                    f"a table of energies of the {mixer.place} has the shape {shape}, its mixer has {wanted}. Take "
                    "another checkpoint."
                )
