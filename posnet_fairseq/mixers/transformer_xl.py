"""Transformer-XL's relative positions."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from posnet_fairseq.mixers.bases import ClipDistance, ContentBasedMixer, MixerSettings
from posnet_fairseq.ops.buckets import Buckets
from posnet_fairseq.ops.heads import split_table
from posnet_fairseq.ops.initialization import linear
from posnet_fairseq.ops.offset_gather import gather_by_offset, plus_products
from posnet_fairseq.ops.sinusoids import sinusoids
from posnet_fairseq.registry import register_mixer


@register_mixer("transformer_xl")
class TransformerXL(ContentBasedMixer):
    """α̂_nm = ((q_n + u)·k_m + (q_n + v)·(W_R s_{n-m})) / √d: Dai et al. (2019); iRPE (ICCV 2021) Eq. 10.

    s is sinusoidal; u and v, of width D, are trained and start at zero. W_R has no bias: it would add the same to
    all energies of a query, which the softmax takes out again. On a grid s is that of the pair of clipped offsets,
    counted as one number, Δ_r·T + Δ_c with T clipped offsets in a row; heads share W_R s (iRPE's supplement, Table 5),
    and pairs with an extra token have a vector of their own, which starts at zero.
    """

    operations_formula = "4N²D + 6ND² - ND"
    GridConfig = ClipDistance
    places = ("encoder", "decoder")

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.relative_extra: nn.Parameter | None = None
        width = settings.embed_dim
        if settings.grid is not None:
            self.buckets = Buckets("clip", settings.options.clip_distance, settings.cells)
            width = self.head_dim
            self.relative_extra = nn.Parameter(torch.zeros(1, width)) if settings.extra_tokens else None
        self.relative_proj = linear(settings.embed_dim, width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(settings.embed_dim))
        self.position_bias = nn.Parameter(torch.zeros(settings.embed_dim))

    def prepare(self, offsets: Any) -> tuple[Tensor, Tensor]:
        """Rows of a table, (N, M), and the table (H or 1, T, d): W_R s for all distances of this call."""
        if self.buckets is not None:
            count = math.prod([2 * reach + 1 for reach in self.buckets.reaches])
            table = self._vectors(torch.arange(count, device=offsets[0].device) - count // 2)
            table = table if self.relative_extra is None else torch.cat([table, self.relative_extra])
            return self.buckets.index(offsets), table.unsqueeze(0)
        # From the rightmost key to the leftmost as the last query sees them; in the decoder none is right of its query.
        keys = offsets.size(1)
        lowest = 0 if self.causal else 1 - keys
        table = self._vectors(torch.arange(lowest, keys, device=offsets.device))
        return (offsets - lowest).clamp(min=0), split_table(table, self.head_dim)

    def _vectors(self, distances: Tensor) -> Tensor:
        return self.relative_proj(sinusoids(distances, self.embed_dim).to(self.relative_proj.weight))

    def energy(self, q: Tensor, k: Any, index: Any) -> Tensor:
        """(B, H, N, M)."""
        rows, table = index
        energy = gather_by_offset((q + self._per_head(self.position_bias)) @ table.mT, rows)
        return plus_products(energy, q + self._per_head(self.content_bias), k)

    def _per_head(self, bias: Tensor) -> Tensor:
        return bias.view(self.num_heads, 1, self.head_dim) * self.scale
