"""Gated positional self-attention."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posnet_fairseq.mixers.bases import ContentBasedMixer, MixerSettings, Options
from posnet_fairseq.mixers.gaussiannet import centers
from posnet_fairseq.ops.dtypes import float_type
from posnet_fairseq.ops.masking import normalized
from posnet_fairseq.registry import register_mixer


@register_mixer("gpsa")
class GPSA(ContentBasedMixer):
    """α_nm = (1 - σ(λ_h)) softmax(q_n·k_m / √d) + σ(λ_h) softmax(w_h·r_{n-m}): ConViT (d'Ascoli et al., 2021) Eqs. 5-8.

    r_δ = (δ², δ), ConViT's features in one dimension (also Translution, 2025, App. E). As there, w starts so that a
    head looks at one neighbor, w·r = -(δ - Δ_h)² up to a constant, and λ at 1. On a grid r = (‖δ‖², δ of rows, δ of
    columns), and with extra tokens a fourth feature, 1 at pairs with one of them; neighbors form a square.
    """

    operations_formula = "2N²D + 4ND²"
    GridConfig = Options
    places = ("encoder", "decoder")

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.cells = settings.cells
        if self.cells is None:
            # The offset n - m of what a head looks at.
            linear = torch.tensor([[-2.0 * center] for center in centers(settings.place, settings.num_heads)])
        else:
            # Heads take the cells of a square around the query in turn.
            side, head = math.isqrt(settings.num_heads), torch.arange(settings.num_heads)
            square = torch.stack([head // side % side, head % side], dim=1) - (side - 1) / 2
            linear = F.pad(2 * square, (0, int(self.cells.extra_tokens > 0)))
        self.position_weight = nn.Parameter(F.pad(linear, (1, 0), value=-1.0))
        self.gate = nn.Parameter(torch.ones(settings.num_heads))

    def prepare(self, offsets: Any) -> tuple[Tensor, ...]:
        """The features r of all pairs, each (N, M)."""
        if self.cells is None:
            return offsets**2, offsets
        row, column = offsets
        features = [self.cells.pairs(each, 0) for each in (row**2 + column**2, row, column)]
        if self.cells.extra_tokens:
            features.append(self.cells.pairs(torch.zeros_like(row), 1))
        return tuple(features)

    def weights(self, q: Tensor, k: Any, index: Any, padding_mask: Tensor | None, hidden: Tensor | None) -> Tensor:
        """The mean of both, weighted by the gate; `index` are the features."""
        content = super().weights(q, k, index, padding_mask, hidden)
        # In float32 at least: squares of distances do not fit in half precision.
        dtype = float_type(self.position_weight)
        of_heads = self.position_weight.to(dtype).T[:, :, None, None]
        first, *others = (weight * feature.to(dtype) for weight, feature in zip(of_heads, index, strict=True))
        position = normalized(sum(others, start=first).unsqueeze(0), padding_mask, hidden)
        return torch.lerp(content, position, self.gate.sigmoid().to(content)[:, None, None])
