"""α-Translution: attention plus a narrow Translution."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from posnet_fairseq.mixers.bases import MixerSettings, MixingContext, OffsetMixer, OffsetOptions, option
from posnet_fairseq.ops.heads import merge_heads, split_heads
from posnet_fairseq.ops.initialization import linear
from posnet_fairseq.ops.offset_gather import plus_products
from posnet_fairseq.registry import register_mixer


@register_mixer("alpha_translution")
class AlphaTranslution(OffsetMixer):
    """α̂_nm = (q_n·k_m + q²_nm·k²_nm) / 2√d, q²_nm = x_n A^Q W^Q_{n-m}: Translution (Fan et al., 2025) Eq. 2, App. D.

    A^Q, A^K, A^V: D to H·C; W_δ: H·C × H·C, of which each head has C columns; all without biases. The mixture is
    (Σ_m α_nm v_m + Σ_m α_nm v²_nm U) / 2 with U: H·C to D, which is applied once to the sum. With a gate (PosNet Eq. 4)
    v_m are the gated values. What ``--translution-on`` leaves out has the narrow tokens x A themselves; energies or
    values without any matrix of an offset are attention's own. On a grid the matrices are those of
    :class:`~posnet_fairseq.mixers.translution.Translution`.
    """

    operations_formula = "2N²D + 4ND² + 3K̂NE² - 4K̂NE + 4N²E + 4NE + 4NDE"

    @dataclass
    class Config(OffsetOptions):
        """How narrow the relative part is."""

        alpha_dim: int = option("C: features of a head in the relative part (Translution Section 3.4)", default=8)

    GridConfig = Config
    # All layers, at 1.1 to 1.2 times the Transformer's parameters; rPosNet and Shaw clip as far in base.
    arch_options: ClassVar = {"translution_clip": 16}

    @classmethod
    def matrix_width(cls, settings: MixerSettings) -> int:
        """H·C."""
        return settings.options.alpha_dim * settings.num_heads

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.narrow_width = self.matrix_width(settings)
        relative_energy = self.matrices.queries is not None or self.matrices.keys is not None
        self.narrow_query = self._narrow() if relative_energy else None
        self.narrow_key = self._narrow() if relative_energy else None
        if relative_energy:
            self.scale /= 2
        relative_values = self.matrices.values is not None
        self.narrow_value = self._narrow() if relative_values else None
        self.widen = linear(self.narrow_width, self.embed_dim, bias=False) if relative_values else None

    def _narrow(self) -> nn.Linear:
        return linear(self.embed_dim, self.narrow_width, bias=False)

    def project_queries(self, query: Tensor, context: MixingContext) -> Tensor:
        """q_n and x_n A^Q next to each other, (B, H, N, d + C)."""
        return self._beside(super().project_queries(query, context), self.narrow_query, query)

    def project_keys(self, memory: Tensor | None, context: MixingContext) -> Tensor:
        """k_m and x_m A^K."""
        return self._beside(super().project_keys(memory, context), self.narrow_key, memory)

    def project_values(self, memory: Tensor | None) -> Tensor:
        """v_m and x_m A^V."""
        return self._beside(super().project_values(memory), self.narrow_value, memory)

    def _beside(self, projected: Tensor, narrow: nn.Linear | None, tokens: Tensor | None) -> Tensor:
        if narrow is None or tokens is None:
            return projected
        return torch.cat([projected, split_heads(narrow(tokens), self.num_heads)], dim=-1)

    def energy(self, q: Tensor, k: Any, index: Any) -> Tensor:
        """(B, H, N, M)."""
        (q, narrow_q), (k, narrow_k) = (x.tensor_split([self.head_dim], dim=-1) for x in (q, k))
        if self.narrow_query is None:
            return q @ k.mT
        return plus_products(self.matrices.energy(narrow_q, narrow_k), q, k)

    def mix_values(self, weights: Tensor, v: Tensor, index: Any) -> Tensor:
        """(B, H, N, d)."""
        v, narrow_v = v.tensor_split([self.head_dim], dim=-1)
        if self.widen is None:
            return weights @ v
        relative = self.widen(merge_heads(self.matrices.mix(weights, narrow_v)))
        return (weights @ v + split_heads(relative, self.num_heads)) / 2
