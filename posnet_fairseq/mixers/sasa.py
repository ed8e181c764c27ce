"""SASA's relative positions of rows and of columns, on grids."""

from typing import ClassVar

import torch
from torch import Tensor

from posnet_fairseq.mixers.bases import ClipDistance, ContentBasedMixer, MixerSettings
from posnet_fairseq.mixers.bases.mixer_settings import check_head_dim
from posnet_fairseq.ops.buckets import Buckets
from posnet_fairseq.ops.initialization import table
from posnet_fairseq.registry import register_mixer


@register_mixer("sasa")
class SASA(ContentBasedMixer):
    """α̂_nm = q_n·(k_m + concat(p[Δ_r], p'[Δ_c])) / √d: Ramachandran et al. (2019); iRPE (ICCV 2021) Eq. 12.

    p and p', both clipped at K and of the width d / 2, are this layer's own and shared by the heads. Pairs with an
    extra token have a row of each. It is a mixer of grids alone.
    """

    GridConfig = ClipDistance
    places: ClassVar[tuple[str, ...]] = ()
    buckets: Buckets

    @classmethod
    def check(cls, settings: MixerSettings) -> None:
        """A head has two halves."""
        check_head_dim(settings, 2, "have no halves for rows and columns")

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.buckets = Buckets("clip", settings.options.clip_distance, settings.cells, "cross")
        self.relative_key = table(self.buckets.rows, self.head_dim // 2)

    def offset_table(self, q: Tensor) -> Tensor:
        """(B, H, N, T): of each bucket the sum of what both halves of a query have for it."""
        of_rows, of_columns = self.buckets.split(self.relative_key)
        half_of_rows, half_of_columns = q.chunk(2, dim=-1)
        products = [half_of_rows @ of_rows.T, half_of_columns @ of_columns.T]
        return self.buckets.table(torch.cat(products, dim=-1).movedim(-1, 0)).movedim(0, -1)
