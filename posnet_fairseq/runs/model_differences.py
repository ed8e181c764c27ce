"""What the models of compared systems differ in besides the mixer of self-attention."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from posnet_eval.report.formats import listed
from posnet_fairseq.shared.errors import flag


def options_of(checkpoint: Path) -> Any:
    """The options of a model, as attributes."""
    from posnet_fairseq.inference.checkpoints import model_options, read_checkpoint

    return SimpleNamespace(**model_options(read_checkpoint(checkpoint)))


def differences(checkpoints: Mapping[str, Path], baseline: str) -> list[str]:
    """Sentences about what systems differ in from the baseline besides the mixer; none where that is nothing.

    Args:
        checkpoints: a translation model of each system.
        baseline: one of the systems.
    """
    options = {system: _besides_mixer(options_of(path)) for system, path in checkpoints.items()}
    usual = options[baseline]
    systems: dict[tuple[str, ...], list[str]] = {}  # by what they differ in
    for system, own in options.items():
        found = tuple(f"{name} {own[name]} ({baseline}: {usual[name]})" for name in own if own[name] != usual[name])
        systems.setdefault(found, []).append(system)
    return [
        f"Besides {'its mixer' if len(names) == 1 else 'their mixers'}, {listed(names)} "
        f"{'has' if len(names) == 1 else 'have'} {listed(found)}."
        for found, names in systems.items()
        if found
    ]


def _besides_mixer(cfg: Any) -> dict[str, str]:
    """The options of a translation model that are none of its mixers', by flag, or the mixers' defaults.

    The mixer of the decoder is one of them: it may be another than the encoder's.
    """
    from posnet_fairseq.registry import option_fields
    from posnet_fairseq.transformer.model_options import PLACE_OPTIONS, TransformerOptions
    from posnet_fairseq.transformer.placement import gate_at, position_kind

    mixers = PLACE_OPTIONS.values()
    names = {option.name for option in dataclasses.fields(TransformerOptions)} - option_fields().keys() - {*mixers}
    same = cfg.decoder_self_mixer == cfg.encoder_self_mixer
    options = {name: getattr(cfg, name) for name in names} | {
        "decoder_self_mixer": "as the encoder" if same else cfg.decoder_self_mixer,
        "cross_mixer": cfg.cross_mixer,
        "gate": _of_both(gate_at(cfg, "encoder"), gate_at(cfg, "decoder")),
        "cross_gate": gate_at(cfg, "cross"),
        "position_embedding": _of_both(position_kind(cfg, "encoder"), position_kind(cfg, "decoder")),
    }
    return {flag(name): str(value) for name, value in sorted(options.items())}


def _of_both(encoder: str, decoder: str) -> str:
    return encoder if encoder == decoder else f"{encoder} in the encoder and {decoder} in the decoder"
