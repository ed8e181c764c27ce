"""Relative attention: queries of tokens, keys of relative positions."""

from typing import Any

from torch import Tensor

from posnet_fairseq.mixers.bases import ClipDistance, ContentBasedMixer, MixerSettings
from posnet_fairseq.ops.buckets import Buckets
from posnet_fairseq.ops.heads import split_table
from posnet_fairseq.ops.initialization import table
from posnet_fairseq.ops.offset_gather import gather_by_offset
from posnet_fairseq.registry import register_mixer


@register_mixer("relative")
class Relative(ContentBasedMixer):
    """α̂_nm = q_n·E_rel[clip(n - m, ±K)] / √d: "Rel. Self-Attention", PosNet (WMT 2023) Section 7.1; Eq. 10 for n - m.

    The same as dynamic convolution (Wu et al., 2019) with global context: there are no keys of tokens. In
    cross-attention n is ⌊γn⌋. On a grid a row of E_rel stands for a pair of clipped offsets.
    """

    operations_formula = "K̂ND + N²D + 3ND²"
    Config = ClipDistance
    GridConfig = ClipDistance
    reads_length_ratio = True
    has_keys = False

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.buckets = Buckets("clip", settings.options.clip_distance, settings.cells)
        self.relative_key = table(self.buckets.rows, settings.embed_dim)

    def energy(self, q: Tensor, k: Any, index: Any) -> Tensor:
        """(B, H, N, M)."""
        return gather_by_offset(q @ split_table(self.relative_key, self.head_dim).mT, index)
