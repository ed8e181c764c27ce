"""Gated DeltaNet: what a key stands for is replaced rather than added to."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posnet_fairseq.mixers.bases import Expand, MixerSettings, MixingContext, RecurrentMixer, gated, option
from posnet_fairseq.ops.dtypes import in_float
from posnet_fairseq.ops.heads import split_heads
from posnet_fairseq.ops.initialization import linear, log_rates, step_bias
from posnet_fairseq.ops.recurrence import Terms
from posnet_fairseq.ops.short_convolution import ShortConvolution
from posnet_fairseq.registry import register_mixer


class Direction(nn.Module):
    """What reads tokens in one direction: a convolution, and what β and a are made of."""

    def __init__(self, settings: MixerSettings, channels: int) -> None:
        super().__init__()
        heads, decays = settings.num_heads, not settings.options.no_decay
        self.convolution = ShortConvolution(channels, bias=False)
        self.write_proj = linear(settings.embed_dim, heads, bias=False)
        self.decay_proj = linear(settings.embed_dim, heads, bias=False) if decays else None
        self.step_bias = step_bias(heads) if decays else None
        self.log_rate = log_rates(heads, 0, 16) if decays else None

    def log_decay(self, x: Tensor) -> Tensor | None:
        """Return log a of tokens (B, N, D), (B, H, N, 1)."""
        if self.decay_proj is None or self.log_rate is None or self.step_bias is None:
            return None
        steps = in_float(split_heads(self.decay_proj(x), len(self.log_rate))) + self.step_bias[:, None, None]
        # With gaps in memory, compiled graphs would expect another layout of its gradient than softplus has.
        return -in_float(self.log_rate).exp()[:, None, None] * F.softplus(steps.contiguous())


@register_mixer("gated_deltanet")
class GatedDeltaNet(RecurrentMixer):
    """S_n = a_n (I - β_n k_n k_nᵀ) S_{n-1} + β_n k_n v_nᵀ, y_n = S_nᵀ q_n / √d: Gated DeltaNet (2025) Eq. 10.

    q, k and v go through a convolution over 4 tokens; q and k are divided by their norms. β = σ(W_β x) and log a =
    -A softplus(W_a x + b) are numbers of each head. The result is RMS(y) of each head, times a learned scale that heads
    share, ⊙ silu(W_G x). In the encoder the convolution, β and a have weights of their own in each direction.
    ``--no-decay``: a = 1, DeltaNet (Yang et al., NeurIPS 2024).
    """

    @dataclass
    class Config(Expand):
        """With decay or without."""

        no_decay: bool = option(
            "DeltaNet (Yang et al., NeurIPS 2024): nothing decays (Gated DeltaNet, Eq. 10 with a = 1)", default=False
        )

    def __init__(self, settings: MixerSettings) -> None:
        width, values = settings.embed_dim, settings.options.expand * settings.embed_dim
        super().__init__(settings, 2 * width + 2 * values, values)
        self.widths = [width, width, values]
        self.by_direction = nn.ModuleList(Direction(settings, sum(self.widths)) for _ in range(self.directions))
        self.norm_scale = nn.Parameter(torch.ones(values // settings.num_heads))

    def project(self, x: Tensor, context: MixingContext) -> tuple[Tensor, ...]:
        """q, k and v in front of the convolution, gate, and the tokens that β and a depend on."""
        features = sum(self.widths)
        projected = self.in_proj(x)
        return projected[..., :features], projected[..., features:], x

    def terms(self, projected: tuple[Tensor, ...], direction: int, context: MixingContext) -> Terms:
        """Convolved and normalized features, β, and a decay of each head."""
        features, _, x = projected
        own = self.by_direction[direction]
        q, k, v = map(self.heads, self.convolve(features, direction, context).split(self.widths, -1))
        write = torch.sigmoid(in_float(self.heads(own.write_proj(x))))
        return Terms(_with_norm(q, self.head_dim**-0.5), _with_norm(k, 1), v, own.log_decay(x), write)

    def finish(self, y: Tensor, projected: tuple[Tensor, ...]) -> Tensor:
        """Normalized and scaled heads, gated."""
        return gated(y, projected[1], self.norm_scale)


def _with_norm(x: Tensor, norm: float) -> Tensor:
    """Return vectors (..., d) of a norm in float32 or wider. As in the published code, zeros stay zeros."""
    x = in_float(x)
    return x * ((x.square().sum(dim=-1, keepdim=True) + 1e-6).rsqrt() * norm)
