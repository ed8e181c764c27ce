"""Retention: attention without softmax, that decays with the distance."""

import torch
from torch import Tensor

from posnet_fairseq.mixers.bases import Expand, MixerSettings, MixingContext, RecurrentMixer, gated
from posnet_fairseq.mixers.rope import check_pairs
from posnet_fairseq.ops.dtypes import float_type
from posnet_fairseq.ops.recurrence import Terms
from posnet_fairseq.ops.sinusoids import rotate
from posnet_fairseq.registry import register_mixer


@register_mixer("retention")
class Retention(RecurrentMixer):
    """y_n = Σ_m γ_h^|n - m| (R_n q_n)·(R_m k_m) / √d v_m, then RMS(y_n) ⊙ silu(W_G x_n): RetNet (2023) Eqs. 5-8.

    Sun et al. (2023): γ_h = 1 - 2^(-5 - h) of the heads h = 0 ... H - 1; R turns features as RoPE does. RMS divides
    each head by the root of its mean square, without a learned scale. In the paper tokens see the past only, and values
    are twice as wide as the model (``--expand 2``). Projections have no biases.
    """

    Config = Expand

    @classmethod
    def check(cls, settings: MixerSettings) -> None:
        """Queries and keys are turned in pairs of features."""
        super().check(settings)
        check_pairs(settings)

    def __init__(self, settings: MixerSettings) -> None:
        values = settings.options.expand * settings.embed_dim
        super().__init__(settings, 2 * settings.embed_dim + 2 * values, values)
        self.widths = [settings.embed_dim, settings.embed_dim, values, values]

    def project(self, x: Tensor, context: MixingContext) -> tuple[Tensor, ...]:
        """q_n and k_m turned by their positions, v, gate."""
        q, k, v, gate = self.in_proj(x).split(self.widths, dim=-1)
        positions = torch.arange(x.size(1), device=x.device) + context.first
        k = rotate(self.heads(k), positions) * self.head_dim**-0.5
        return rotate(self.heads(q), positions), k, self.heads(v), gate

    def terms(self, projected: tuple[Tensor, ...], direction: int, context: MixingContext) -> Terms:
        """The same decay of every token."""
        q, k, v, _ = projected
        exponents = torch.arange(5, 5 + self.num_heads, dtype=torch.float64, device=q.device)
        log_decay = torch.log1p(-(2.0**-exponents)).to(float_type(q))
        return Terms(q, k, v, log_decay[None, :, None, None].expand(q.size(0), -1, q.size(2), -1))

    def finish(self, y: Tensor, projected: tuple[Tensor, ...]) -> Tensor:
        """Normalized heads, gated."""
        return gated(y, projected[-1])
