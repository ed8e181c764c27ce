"""Translution: attention's choice of tokens with a convolution's matrices."""

from typing import Any, ClassVar

from torch import Tensor, nn

from posnet_fairseq.mixers.bases import MixerSettings, OffsetMixer
from posnet_fairseq.registry import register_mixer


@register_mixer("translution")
class Translution(OffsetMixer):
    """α̂_nm = (x_n W^Q_{n-m})·(x_m W^K_{n-m}) / √d, values x_m W^V_{n-m}: Translution (Fan et al., 2025) Eq. 1, App. C.

    Every offset has three D × D matrices, without biases; from ``--translution-clip`` on they share them. The encoder
    has offsets to both sides, the decoder to the left. With a gate (PosNet Eq. 4) W^V_δ is applied to gated values.
    On a grid every pair of offsets has them, clipped in both directions, and with extra tokens there are three more: of
    pairs of extra tokens, of an extra query and a cell, of a cell and an extra key.
    """

    operations_formula = "3K̂ND² - 4K̂ND + 4N²D + ND² + 4ND"

    # At most twice the Transformer's parameters (tiny), in base 1.3 times. With every offset in every layer, as in the
    # paper, it would be 28 times in base.
    arch_options: ClassVar = {"translution_clip": 4, "translution_layers": 2}

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        if self.matrices.queries is not None:
            self.query_proj = nn.Identity()
        if self.matrices.keys is not None:
            self.key_proj = nn.Identity()
        if self.matrices.values is not None and settings.gate == "none":
            self.gating.value_proj = nn.Identity()

    def energy(self, q: Tensor, k: Any, index: Any) -> Tensor:
        """(B, H, N, M)."""
        return self.matrices.energy(q, k)

    def mix_values(self, weights: Tensor, v: Tensor, index: Any) -> Tensor:
        """Σ_m α_nm x_m W^V_{n-m}."""
        return self.matrices.mix(weights, v)
