"""Huang's relative positions for queries and keys."""

from torch import Tensor

from posnet_fairseq.mixers.bases import ClipDistance, ContentBasedMixer, MixerSettings
from posnet_fairseq.ops.buckets import Buckets
from posnet_fairseq.ops.heads import split_table
from posnet_fairseq.ops.initialization import table
from posnet_fairseq.registry import register_mixer


@register_mixer("huang")
class Huang(ContentBasedMixer):
    """α̂_nm = ((q_n + p)·(k_m + p) - p·p) / √d, p = P[clip(n - m, ±K)]: Huang et al. (2020); iRPE (ICCV 2021) Eq. 11.

    P, (2K + 1, D), is this layer's own, split over heads and shared by queries and keys. Multiplied out, p·p goes:
    q·k + q·p + k·p. On a grid a row stands for a pair of clipped offsets, and the heads share them (iRPE's supplement,
    Table 5).
    """

    operations_formula = "2K̂ND + 2N²D + 4ND²"
    Config = ClipDistance
    GridConfig = ClipDistance
    places = ("encoder", "decoder")

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.buckets = Buckets("clip", settings.options.clip_distance, settings.cells)
        self.relative = table(self.buckets.rows, self.embed_dim if settings.grid is None else self.head_dim)

    def offset_table(self, q: Tensor) -> Tensor:
        """(B, H, N, 2K + 1)."""
        return q @ self.key_vectors().mT

    def key_vectors(self) -> Tensor:
        """P."""
        return split_table(self.relative, self.head_dim)
