"""Attention with a scalar for every relative position."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from posnet_fairseq.mixers.bases import ClipDistance, ContentBasedMixer, MixerSettings, option
from posnet_fairseq.ops.buckets import Buckets
from posnet_fairseq.ops.initialization import table
from posnet_fairseq.registry import register_mixer


@register_mixer("scalar_bias")
class ScalarBias(ContentBasedMixer):
    """α̂_nm = q_n·k_m / √d + b_h[index(n - m)]: T5 (Raffel et al., 2020); Swin (2021) Eq. 4; Translution App. E.5.

    b is (H, 2K + 1), of this layer; on a grid it has a scalar for every pair of clipped offsets.
    """

    operations_formula = "2N²D + 4ND²"

    @dataclass
    class Config(ClipDistance):
        """How distances share scalars."""

        scalar_bias_index: Literal["clip", "piecewise"] = option(
            "distances beyond K share one scalar, or distances share ever more (iRPE Eqs. 9 and 18)",
            default="clip",
        )

    GridConfig = Config
    places = ("encoder", "decoder")

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        options = settings.options
        self.buckets = Buckets(options.scalar_bias_index, options.clip_distance, settings.cells)
        self.bias = table(self.num_heads, self.buckets.rows)

    def offset_table(self, q: Tensor) -> Tensor:
        """(1, H, 1, 2K + 1)."""
        return self.bias[:, None].unsqueeze(0)
