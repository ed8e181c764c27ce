"""Differential attention: the difference of two softmaxes."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posnet_fairseq.mixers.bases import ContentBasedMixer, Mixed, MixerSettings, MixingContext, Options, option
from posnet_fairseq.mixers.bases.mixer_settings import side_of
from posnet_fairseq.ops.heads import split_heads
from posnet_fairseq.registry import register_mixer
from posnet_fairseq.shared import errors


@register_mixer("differential")
class Differential(ContentBasedMixer):
    """α_nm = softmax(q¹_n·k¹_m / √d) - λ softmax(q²_n·k²_m / √d): Ye et al. (ICLR 2025) Eqs. 1-3.

    H, ``--encoder-attention-heads`` and the like, is the number of softmaxes, as in attention, and must be even: the
    heads of queries and keys have the usual width d = D/H, and each pair of them, the heads 2i - 1 and 2i, mixes values
    of the width 2d by its difference. The paper counts the pairs: its h is H/2, its d is the same. With `need_weights`
    both heads of a pair have its difference.

    λ = exp(λ_q1·λ_k1) - exp(λ_q2·λ_k2) + λ_init is one number for a layer; its four vectors of width d start normally
    distributed with standard deviation 0.1. What a pair has mixed is divided by the root of its mean square, multiplied
    by a scale of width 2d that the pairs share, and by 1 - λ_init. In the authors' code, λ_init grows with the layer,
    from 0.2 to 0.8; with 0.8 in all layers, the default here, the paper finds about the same loss.
    """

    operations_formula = "2N²D + 4ND²"

    @dataclass
    class Config(Options):
        """What the second softmax is multiplied by at the start."""

        lambda_init: float = option(
            "λ_init of differential attention (Ye et al., 2025, Eq. 2)", default=0.8, limits=(0, 0.99)
        )

    @classmethod
    def check(cls, settings: MixerSettings) -> None:
        """Heads are paired."""
        if settings.num_heads % 2:
            heads = errors.option(f"{side_of(settings.place)}_attention_heads")
            raise errors.UsageError(
                f"{heads} {settings.num_heads}: differential subtracts the weights of one head from those of another. "
                "Give an even number of heads."
            )

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.lambda_init = settings.options.lambda_init
        self.lambda_query = nn.Parameter(torch.empty(2, self.head_dim).normal_(std=0.1))
        self.lambda_key = nn.Parameter(torch.empty(2, self.head_dim).normal_(std=0.1))
        self.norm_scale = nn.Parameter(torch.ones(2 * self.head_dim))

    def project_values(self, memory: Tensor | None) -> Tensor:
        """v_m of the pairs, (B, H/2, M, 2d)."""
        assert memory is not None
        return split_heads(self.gating.value(memory), self.num_heads // 2)

    def weights(self, q: Tensor, k: Any, index: Any, padding_mask: Tensor | None, hidden: Tensor | None) -> Tensor:
        """The differences, (B, H/2, N, M)."""
        first, second = super().weights(q, k, index, padding_mask, hidden).unflatten(1, (-1, 2)).unbind(2)
        products = (self.lambda_query * self.lambda_key).to(first).sum(dim=1).exp()
        return torch.addcmul(first, second, products[1] - products[0] - self.lambda_init)

    def mix(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
        """The mixed values of the pairs, normalized, (B, H/2, N, 2d), and weights (B, H, N, M)."""
        mixed, weights = super().mix(query, memory, context)
        norm_scale = self.norm_scale.to(mixed) * (1 - self.lambda_init)
        weights = None if weights is None else weights.repeat_interleave(2, dim=1)
        return F.rms_norm(mixed, norm_scale.shape, norm_scale, eps=1e-5), weights
