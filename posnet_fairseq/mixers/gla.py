"""Gated linear attention: a decay of every feature that depends on the token."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posnet_fairseq.mixers.bases import Expand, MixerSettings, MixingContext, RecurrentMixer, gated
from posnet_fairseq.mixers.bases.mixer_settings import check_head_dim
from posnet_fairseq.ops.dtypes import in_float
from posnet_fairseq.ops.initialization import linear
from posnet_fairseq.ops.recurrence import Terms
from posnet_fairseq.registry import register_mixer

# Width between W₁ and W₂, and the power of the decays (Section 4.4).
RANK, TEMPERATURE = 16, 16


@register_mixer("gla")
class GatedLinearAttention(RecurrentMixer):
    """S_n = diag(a_n) S_{n-1} + k_n v_nᵀ, y_n = S_nᵀ q_n / √d_k, RMS(y_n) ⊙ silu(W_G x_n): GLA (2024) Eqs. 3-4.

    a_n = σ(W₂ W₁ x_n + b)^(1/16) (Section 4.4) is a number for each of the d_k = d/2 features of a head; W₁ is (16, D).
    RMS divides each head by the root of its mean square and multiplies by a learned scale that heads share. Only W₂ has
    a bias. In the encoder a_n has weights of its own in each direction.
    """

    Config = Expand

    @classmethod
    def check(cls, settings: MixerSettings) -> None:
        """Keys are half as wide as heads."""
        super().check(settings)
        check_head_dim(settings, 2, "have no keys of half their width")

    def __init__(self, settings: MixerSettings) -> None:
        width, values = settings.embed_dim, settings.options.expand * settings.embed_dim
        keys = width // 2
        super().__init__(settings, 2 * keys + 2 * values, values)
        self.widths = [keys, keys, values, values]
        self.decay_projs = nn.ModuleList(
            nn.Sequential(linear(width, RANK, bias=False), linear(RANK, keys)) for _ in range(self.directions)
        )
        self.norm_scale = nn.Parameter(torch.ones(values // settings.num_heads))

    def project(self, x: Tensor, context: MixingContext) -> tuple[Tensor, ...]:
        """q, k, v, gate, and the tokens that decays depend on."""
        q, k, v, gate = self.in_proj(x).split(self.widths, dim=-1)
        q = self.heads(q)
        return q * q.size(-1) ** -0.5, self.heads(k), self.heads(v), gate, x

    def terms(self, projected: tuple[Tensor, ...], direction: int, context: MixingContext) -> Terms:
        """A decay of every feature."""
        q, k, v, _, x = projected
        logits = self.decay_projs[direction](x)
        return Terms(q, k, v, F.logsigmoid(in_float(self.heads(logits))) / TEMPERATURE)

    def finish(self, y: Tensor, projected: tuple[Tensor, ...]) -> Tensor:
        """Normalized and scaled heads, gated."""
        return gated(y, projected[3], self.norm_scale)
