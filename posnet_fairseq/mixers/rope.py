"""RoPE: queries and keys turned by their position."""

import torch
from torch import Tensor

from posnet_fairseq.mixers.attention import Attention
from posnet_fairseq.mixers.bases import MixerSettings, MixingContext
from posnet_fairseq.ops.sinusoids import rotate
from posnet_fairseq.registry import register_mixer
from posnet_fairseq.shared.errors import UsageError, option


@register_mixer("rope")
class RoPE(Attention):
    """α̂_nm = (R_n q_n)·(R_m k_m) / √d: RoFormer (Su et al., 2021) Eqs. 14-16 and 34; Translution (2025) App. E.

    R turns pairs of features by angles that grow with the position; energies depend on n - m. RoFormer itself has no
    other position embedding: ``--position-embedding none``.
    """

    operations_formula = "2N²D + 4ND²"
    places = ("encoder", "decoder")

    @classmethod
    def check(cls, settings: MixerSettings) -> None:
        """Features are turned in pairs."""
        width = settings.embed_dim // settings.num_heads
        if width % 2:
            heads, dim = (option(f"{settings.place}_{name}") for name in ("attention_heads", "embed_dim"))
            raise UsageError(
                f"{heads} {settings.num_heads}: heads of {width} features cannot be turned in pairs by rope. "
                f"Choose heads so that {dim} {settings.embed_dim} / heads is even."
            )

    def project_queries(self, query: Tensor, context: MixingContext) -> Tensor:
        """q_n turned by n."""
        return self._turn(super().project_queries(query, context), context.first)

    def project_keys(self, memory: Tensor | None, context: MixingContext) -> Tensor:
        """k_m turned by m; steps remember it so."""
        return self._turn(super().project_keys(memory, context), context.first)

    def _turn(self, x: Tensor, first: int) -> Tensor:
        return rotate(x, torch.arange(first, first + x.size(2), device=x.device))
