"""RoPE: queries and keys turned by their position."""

import torch
from torch import Tensor

from posnet_fairseq.mixers.attention import Attention
from posnet_fairseq.mixers.bases import MixerSettings, MixingContext
from posnet_fairseq.mixers.bases.mixer_settings import check_head_dim
from posnet_fairseq.ops.sinusoids import rotate
from posnet_fairseq.registry import register_mixer


@register_mixer("rope")
class RoPE(Attention):
    """α̂_nm = (R_n q_n)·(R_m k_m) / √d: RoFormer (Su et al., 2021) Eqs. 14-16 and 34; Translution (2025) App. E.

    R turns pairs of features by angles that grow with the position; energies depend on n - m. RoFormer itself has no
    other position embedding: ``--position-embedding none``. On a grid half of the pairs turn by the row, half by the
    column, and extra tokens are not turned.
    """

    places = ("encoder", "decoder")

    @classmethod
    def check(cls, settings: MixerSettings) -> None:
        """Features are turned in pairs, on a grid in pairs of each direction."""
        check_pairs(settings)

    def project_queries(self, query: Tensor, context: MixingContext) -> Tensor:
        """q_n turned by n."""
        return self._turn(super().project_queries(query, context), context)

    def project_keys(self, memory: Tensor | None, context: MixingContext) -> Tensor:
        """k_m turned by m; steps remember it so."""
        return self._turn(super().project_keys(memory, context), context)

    def _turn(self, x: Tensor, context: MixingContext) -> Tensor:
        if context.grid is not None:
            return rotate(x, *context.grid.places(x.device))
        return rotate(x, torch.arange(context.first, context.first + x.size(2), device=x.device))


def check_pairs(settings: MixerSettings) -> None:
    """Refuse heads whose features are not pairs, on a grid pairs of each direction."""
    pairs, features = ("pairs", 2) if settings.grid is None else ("pairs of rows and columns", 4)
    check_head_dim(settings, features, f"cannot be turned in {pairs} by {settings.mixer}")
