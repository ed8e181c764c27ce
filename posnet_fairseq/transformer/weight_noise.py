"""Training with noise on weights, so that a model loses less where noisy conductances stand for them."""

from collections.abc import Collection
from typing import Any

from torch import nn

from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.ops.linear import Linear
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.parts import PARTS, parse_parts
from posnet_fairseq.transformer.parts import linears
from posnet_fairseq.transformer.placement import mixer_at, places


def add_weight_noise(model: nn.Module, parts: Collection[str], scale: float) -> None:
    """Let every pass in training draw normally distributed noise on weights.

    The noise of a pass is the same for all its sentences. Gradients are those of the noisy weights, and change the
    weights without noise. In evaluation mode there is none.

    Args:
        model: a translation model, which is changed.
        parts: of :data:`posnet_fairseq.shared.parts.PARTS`.
        scale: its standard deviation, as a share of the largest weight for the same output: of a row of a matrix, or of
            the mixing weights of one query and head.
    """
    for part in PARTS[1:]:
        if part in parts:
            for _, _, linear in linears(model, part):
                assert isinstance(linear, Linear)
                linear.noise = scale
    if "mixing" in parts:
        for module in model.modules():
            if isinstance(module, PositionBasedMixer):
                module.weight_noise = scale


def check_weight_noise(cfg: Any) -> None:
    """Refuse options of the noise that do not fit together or the model.

    Raises:
        UsageError: with the option, the value, and what is allowed.
    """
    noise, on = cfg.weight_noise, cfg.weight_noise_on
    if not isinstance(noise, (int, float)) or not 0 <= noise < 1:
        raise UsageError(f"--weight-noise {noise}: give 0 or more and less than 1, such as 0.04.")
    if noise and on is None:
        raise UsageError(
            f"--weight-noise {noise}: on which weights? Give --weight-noise-on with one or more of {', '.join(PARTS)}, "
            "with commas between."
        )
    if on is None:
        return
    parts = parse_parts("--weight-noise-on", on)
    if not noise:
        raise UsageError(f"--weight-noise-on {on}: how much? Give --weight-noise, such as 0.04.")
    mixers = [mixer_at(cfg, place) for place in places(cfg)]
    if "mixing" in parts and not any(issubclass(mixer, PositionBasedMixer) for mixer in mixers):
        names = ", ".join(sorted({mixer.name for mixer in mixers}))
        raise UsageError(
            f"--weight-noise-on {on}: the weights of {names} cannot be stored, so mixing gets no noise. "
            f"Give one or more of {', '.join(PARTS[1:])}, or another mixer."
        )
    if "mixing" in parts and cfg.shared_attention_dropout:
        raise UsageError(
            "--shared-attention-dropout with --weight-noise-on mixing: noisy weights are computed for each sentence. "
            "Leave one of the two out."
        )


def apply_weight_noise(model: nn.Module, cfg: Any) -> None:
    """:func:`add_weight_noise` as the options of a model say."""
    if cfg.weight_noise:
        add_weight_noise(model, parse_parts("--weight-noise-on", cfg.weight_noise_on), cfg.weight_noise)
