"""Mamba-2: a selective state space whose decay is a number of each head."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posnet_fairseq.mixers.bases import MixerSettings, MixingContext, Options, RecurrentMixer, option
from posnet_fairseq.mixers.bases.recurrent import EPSILON, expand_option
from posnet_fairseq.ops.dtypes import in_float
from posnet_fairseq.ops.heads import merge_heads
from posnet_fairseq.ops.initialization import log_rates, step_bias, without_decay
from posnet_fairseq.ops.recurrence import Terms
from posnet_fairseq.ops.short_convolution import ShortConvolution
from posnet_fairseq.registry import register_mixer


class Direction(nn.Module):
    """What reads tokens in one direction: a convolution, and the parameters of step sizes and decays."""

    def __init__(self, heads: int, channels: int) -> None:
        super().__init__()
        self.convolution = ShortConvolution(channels, bias=True)
        self.step_bias = step_bias(heads)
        self.log_rate = log_rates(heads, 1, 16)


@register_mixer("mamba2")
class Mamba2(RecurrentMixer):
    """S_n = exp(-Δ_n A) S_{n-1} + Δ_n B_n x'_nᵀ, y_n = S_nᵀ C_n + D x'_n: Mamba-2 (2024) Eq. 1 and Section 7.1.

    Dao and Gu (ICML 2024): z, x', B, C and Δ are projections of x, without biases; x', B and C go through a convolution
    over 4 tokens. Heads share B and C, of ``--state-size`` features each. Δ = softplus(· + b), A and D are numbers of
    each head. The result is RMS(y ⊙ silu(z)) over all features, times a learned scale, and its projection. In the
    encoder convolution, Δ and A have weights of their own in each direction; D multiplies the x' of the first one. With
    the default widths a layer has 6D² + 130D + H parameters, and (H + 10)·D + 640 + 2H more for each direction, where D
    is the width of the model.
    """

    @dataclass
    class Config(Options):
        """Widths of the state."""

        expand: int = expand_option(2)
        state_size: int = option("features of B and C (Mamba-2, Section 7.1)", default=64)

    def __init__(self, settings: MixerSettings) -> None:
        heads, states = settings.num_heads, settings.options.state_size
        values, directions = settings.options.expand * settings.embed_dim, 1 if settings.place == "decoder" else 2
        self.sizes = [values, values + 2 * states, directions * heads]
        super().__init__(settings, sum(self.sizes), values)
        self.widths = [values, states, states]
        self.by_direction = nn.ModuleList(Direction(heads, sum(self.widths)) for _ in range(directions))
        self.skip = without_decay(torch.ones(heads))
        self.norm_scale = nn.Parameter(torch.ones(values))

    def project(self, x: Tensor, context: MixingContext) -> tuple[Tensor, ...]:
        """z, what goes into the convolutions, step sizes, and what comes out of the first convolution."""
        z, features, steps = self.in_proj(x).split(self.sizes, dim=-1)
        return z, features, steps, self.convolve(features, 0, context)

    def terms(self, projected: tuple[Tensor, ...], direction: int, context: MixingContext) -> Terms:
        """Keys B and queries C that heads share, values Δ x', a decay of each head."""
        _, features, steps, convolved = projected
        if direction:
            convolved = self.convolve(features, direction, context)
        own = self.by_direction[direction]
        x, b, c = convolved.split(self.widths, dim=-1)
        step = F.softplus(in_float(steps.split(self.num_heads, dim=-1)[direction]) + own.step_bias)
        step = self.heads(step)
        return Terms(
            c[:, None],
            b[:, None],
            self.heads(x) * step.to(x.dtype),
            -in_float(own.log_rate).exp()[:, None, None] * step,
        )

    def finish(self, y: Tensor, projected: tuple[Tensor, ...]) -> Tensor:
        """Values of the token itself added, gated, normalized and scaled."""
        z, _, _, convolved = projected
        own = self.heads(convolved[..., : self.widths[0]]) * self.skip[:, None, None]
        mixed = merge_heads(y + own) * F.silu(z)
        return F.rms_norm(mixed, (self.widths[0],), self.norm_scale.to(mixed.dtype), EPSILON)
