"""aPosNet: attention between absolute positions."""

from posnet_fairseq.mixers._position_based import PositionBasedMixer
from posnet_fairseq.ops.initialisation import linear
from posnet_fairseq.registry import register_mixer


@register_mixer("aposnet")
class APosNet(PositionBasedMixer):
    """α̂_nm = (W_Q ñ)·(W_K m̃) / √d: PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 8, ñ sinusoidal."""

    def __init__(self, settings):
        super().__init__(settings)
        self.query_proj = linear(settings.embed_dim, settings.embed_dim)
        self.key_proj = linear(settings.embed_dim, settings.embed_dim)

    def energy(self, query_positions, memory_positions):
        """(N, D) and (M, D) to (H, N, M)."""
        q = self.query_proj(query_positions).unflatten(1, (self.num_heads, self.head_dim))
        k = self.key_proj(memory_positions).unflatten(1, (self.num_heads, self.head_dim))
        return q.transpose(0, 1) @ k.permute(1, 2, 0) * self.head_dim**-0.5
