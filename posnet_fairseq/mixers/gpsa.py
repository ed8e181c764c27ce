"""Gated positional self-attention."""

from typing import Any

import torch
from torch import Tensor, nn

from posnet_fairseq.mixers.bases import ContentBasedMixer, MixerSettings
from posnet_fairseq.mixers.gaussiannet import centres
from posnet_fairseq.ops.masking import normalized
from posnet_fairseq.registry import register_mixer


@register_mixer("gpsa")
class GPSA(ContentBasedMixer):
    """α_nm = (1 - σ(λ_h)) softmax(q_n·k_m / √d) + σ(λ_h) softmax(w_h·r_{n-m}): ConViT (d'Ascoli et al., 2021) Eqs. 5-8.

    r_δ = (δ², δ), ConViT's features in one dimension (also Translution, 2025, App. E). As there, w starts so that a
    head looks at one neighbor, w·r = -(δ - Δ_h)² up to a constant, and λ at 1.
    """

    operations_formula = "2N²D + 4ND²"
    places = ("encoder", "decoder")

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        neighbor = -centres(settings.place, settings.num_heads).float()  # the offset n - m of what a head looks at
        self.position_weight = nn.Parameter(torch.stack([-torch.ones_like(neighbor), 2 * neighbor], dim=1))
        self.gate = nn.Parameter(torch.ones(settings.num_heads))

    def energy(self, q: Tensor, k: Any, index: Any) -> Tensor:
        """That of tokens, (B, H, N, M)."""
        return q @ k.mT

    def position_energy(self, offsets: Tensor) -> Tensor:
        """That of positions, (1, H, N, M), in float32 at least: squares of distances do not fit in half precision."""
        dtype = torch.promote_types(self.position_weight.dtype, torch.float32)
        square, linear = self.position_weight.to(dtype).T[:, :, None, None]
        offsets = offsets.to(dtype)
        return (square * offsets**2 + linear * offsets).unsqueeze(0)

    def weights(self, q: Tensor, k: Any, index: Any, padding_mask: Tensor | None, hidden: Tensor | None) -> Tensor:
        """The mean of both, weighted by the gate; `index` are the offsets."""
        content = super().weights(q, k, index, padding_mask, hidden)
        position = normalized(self.position_energy(index), padding_mask, hidden)
        return torch.lerp(content, position, self.gate.sigmoid().to(content)[:, None, None])
