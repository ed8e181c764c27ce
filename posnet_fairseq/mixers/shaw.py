"""Shaw's relative position representations."""

from dataclasses import dataclass

from torch import Tensor

from posnet_fairseq.mixers.bases import ClipDistance, ContentBasedMixer, MixerSettings, option
from posnet_fairseq.ops.buckets import Buckets
from posnet_fairseq.ops.heads import split_table
from posnet_fairseq.ops.initialization import table
from posnet_fairseq.registry import register_mixer


@register_mixer("shaw")
class Shaw(ContentBasedMixer):
    """α̂_nm = q_n·(k_m + E_K[clip(n - m, ±K)]) / √d: Shaw et al. (2018) Eqs. 3-5; iRPE (ICCV 2021) Eqs. 7-9.

    E_K, (2K + 1, D), is this layer's own and split over heads. ``--shaw-values``: values are v_m + E_V[clip(n - m)].
    In cross-attention n is ⌊γn⌋. On a grid a row of E stands for a pair of clipped offsets, and the heads share them
    (iRPE's supplement, Table 5).
    """

    operations_formula = "K̂ND + 2N²D + 4ND²"

    @dataclass
    class Config(ClipDistance):
        """Keys, or keys and values."""

        shaw_values: bool = option(
            "also add relative position vectors to values (Shaw et al., 2018, Eq. 3; Translution App. E)",
            default=False,
        )

    GridConfig = Config
    reads_length_ratio = True

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.buckets = Buckets("clip", settings.options.clip_distance, settings.cells)
        size = self.buckets.rows, self.embed_dim if settings.grid is None else self.head_dim
        self.relative_key = table(*size)
        self.relative_value = table(*size) if settings.options.shaw_values else None

    def offset_table(self, q: Tensor) -> Tensor:
        """(B, H, N, 2K + 1)."""
        return q @ split_table(self.relative_key, self.head_dim).mT

    def value_vectors(self) -> Tensor | None:
        """E_V."""
        return None if self.relative_value is None else split_table(self.relative_value, self.head_dim)
