"""Training with noise on weights, so that a model loses less where noisy conductances stand for them."""

import functools
from typing import Any

import torch
from torch import Tensor, nn

from posnet_fairseq.analog.crossbar_parts import linears
from posnet_fairseq.analog.hardware import PARTS, parse_parts
from posnet_fairseq.mixers.bases.context import Mixed, MixingContext
from posnet_fairseq.mixers.bases.mixer_settings import check_probability
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer, without_padding
from posnet_fairseq.ops.linear import Linear, linear
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.placement import mixers_of, names_of


def noise_of(weight: Tensor, scale: float, draws: Tensor | None = None) -> Tensor:
    """Return normally distributed noise for a matrix.

    Its standard deviation is ``scale`` times the largest absolute value of the row: a crossbar has a digital scale for
    each output line, by which the largest weight of the line takes the largest conductance.

    ``draws`` are standard normal numbers, of a shape that broadcasts to that of ``weight``; by default new ones. The
    result is of its shape, (..., O, I), without gradient.
    """
    weight = weight.detach()
    draws = torch.randn_like(weight) if draws is None else draws
    return draws * (scale * weight.abs().amax(dim=-1, keepdim=True))


class NoisyLinear(Linear):
    """A linear layer that multiplies by noisy weights in training."""

    noise: float

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        return linear(x, self.noisy_weight(), self.bias)

    def noisy_weight(self) -> Tensor:
        """Return the weight; in training with noise, another draw at each call."""
        return self.weight + noise_of(self.weight, self.noise) if self.training else self.weight


def _mix_by_noisy_weights(
    mixer: PositionBasedMixer, noise: float, query: Tensor, memory: Tensor | None, context: MixingContext
) -> Mixed:
    """Mix as the mixer does; in training with noise on its weights, the same for all sentences of a batch."""
    if not mixer.training or context.state is not None:
        return type(mixer).mix(mixer, query, memory, context)
    value = mixer.value(memory, context)
    queries, keys = query.size(1), value.size(2)
    draws = torch.randn(mixer.num_heads, queries, keys, dtype=value.dtype, device=value.device)
    hidden = mixer.hidden(context.offsets(queries, keys))
    if hidden is not None:
        draws = draws.masked_fill(hidden, 0)
    return mixer.mix_each(
        query, value, context, change=lambda x, padding: x + without_padding(noise_of(x, noise, draws), padding)
    )


def make_noisy(module: Linear | PositionBasedMixer, noise: float) -> None:
    """Let a module draw noise on its weights in every pass in training, see :func:`add_weight_noise`."""
    if isinstance(module, Linear):
        module.__class__ = NoisyLinear  # parameters keep their names, and are shared as before
        module.noise = noise  # type: ignore[assignment]
    else:
        module.mix = functools.partial(_mix_by_noisy_weights, module, noise)  # type: ignore[method-assign]


def add_weight_noise(model: nn.Module, cfg: Any) -> None:
    """Let every pass in training draw normally distributed noise on weights, as the options of the model say.

    The noise of a pass is the same for all its sentences. Gradients are those of the noisy weights, and change the
    weights without noise. In evaluation mode there is none.

    ``--weight-noise`` is its standard deviation, as a share of the largest weight for the same output: of a row of a
    matrix, or of the mixing weights of one query and head.
    """
    if not cfg.weight_noise:
        return
    parts = parse_parts("--weight-noise-on", cfg.weight_noise_on)
    modules: list[Any] = [linear for part in PARTS[1:] if part in parts for _, _, linear in linears(model, part)]
    if "mixing" in parts:
        modules += [module for module in model.modules() if isinstance(module, PositionBasedMixer)]
    for module in modules:
        make_noisy(module, cfg.weight_noise)


def check_weight_noise(cfg: Any) -> None:
    """Refuse options of the noise that do not fit together or the model."""
    noise, on = cfg.weight_noise, cfg.weight_noise_on
    check_probability("weight_noise", noise)
    if not noise and on is None:
        return
    if not noise or on is None:
        raise UsageError(
            f"--weight-noise {noise} with --weight-noise-on {on}: give both, such as 0.04 and {','.join(PARTS)}, or "
            "neither."
        )
    parts = parse_parts("--weight-noise-on", on)
    mixers = mixers_of(cfg)
    if "mixing" in parts and not any(issubclass(mixer, PositionBasedMixer) for mixer in mixers):
        raise UsageError(
            f"--weight-noise-on {on}: the weights of {names_of(mixers)} cannot be stored, so mixing gets no noise. "
            f"Give one or more of {', '.join(PARTS[1:])}, or another mixer."
        )
