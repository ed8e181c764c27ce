"""aPosNet: attention between absolute positions."""

from torch import Tensor

from posnet_fairseq.mixers.bases import PLACES, Energy, MixerSettings, PositionBasedMixer, enough
from posnet_fairseq.ops.initialization import linear
from posnet_fairseq.registry import register_mixer


class AbsoluteEnergy(Energy):
    """(W_Q ñ)·(W_K m̃) / √d: PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 8, ñ at ⌊γn⌋ in cross-attention."""

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__()
        self.num_heads = settings.num_heads
        self.query_proj = linear(settings.embed_dim, settings.embed_dim)
        self.key_proj = linear(settings.memory_dim, settings.embed_dim)

    def table(self, at: Tensor, keys: int, positions: Tensor | None, memory_positions: Tensor | None) -> Tensor:
        """(H, N, M)."""
        q = self.query_proj(enough(positions, len(at), "positions")[at]).unflatten(1, (self.num_heads, -1))
        k = self.key_proj(enough(memory_positions, keys, "memory_positions")[:keys]).unflatten(1, (self.num_heads, -1))
        return q.transpose(0, 1) @ k.permute(1, 2, 0) * q.size(-1) ** -0.5


@register_mixer("aposnet")
class APosNet(PositionBasedMixer):
    """α̂_nm = (W_Q ñ)·(W_K m̃) / √d: PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 8.

    ñ and m̃ are sinusoidal by default. In cross-attention ñ is the vector of ⌊γn⌋.
    """

    operations_formula = "2N²D + 5ND²"
    stored_operations_formula = "N²D + 3ND²"
    places = PLACES
    default_gate = "gelu"
    reads_positions = True
    reads_memory_positions = True
    reads_length_ratio = True

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.energies.append(AbsoluteEnergy(settings))
