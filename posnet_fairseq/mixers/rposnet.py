"""rPosNet: attention of absolute to relative positions."""

from torch import Tensor

from posnet_fairseq.mixers.bases import PLACES, BandedMixer, ClipDistance, Energy, MixerSettings, enough
from posnet_fairseq.ops.heads import split_table
from posnet_fairseq.ops.initialization import linear, table
from posnet_fairseq.registry import register_mixer


class RelativeEnergy(Energy):
    """(W_Q ñ)·E_rel[clip(⌊γn⌋ - m, ±K)] / √d: PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 9 and 10."""

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__()
        self.num_heads = settings.num_heads
        self.reach, self.cells = settings.options.clip_distance, settings.cells
        self.query_proj = linear(settings.embed_dim, settings.embed_dim)
        self.relative = table(self.buckets.rows, settings.embed_dim)

    def table(self, at: Tensor, keys: int, positions: Tensor | None, memory_positions: Tensor | None) -> Tensor:
        """(H, N, 2K + 1)."""
        q = self.query_proj(enough(positions, len(at), "positions")[: len(at)]).unflatten(1, (self.num_heads, -1))
        return q.transpose(0, 1) @ split_table(self.relative, q.size(-1)).mT * q.size(-1) ** -0.5


@register_mixer("rposnet")
class RPosNet(BandedMixer):
    """α̂_nm = (W_Q ñ)·E_rel[clip(⌊γn⌋ - m, ±K)] / √d: PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 9 and 10.

    ñ is a learned embedding after one LayerNorm. E_rel, (2K + 1, D), is this layer's own and split over
    heads; its rows run from K or more to the right to K or more to the left. γ is 1 in self-attention. On a grid ñ is
    the vector of a token's number, and a row of E_rel stands for a pair of clipped offsets.
    """

    operations_formula = "K̂ND + N²D + 4ND²"
    stored_operations_formula = "N²D + 3ND²"
    Config = ClipDistance
    GridConfig = ClipDistance
    places = PLACES
    default_gate = "gelu"
    position_embedding = "learned"
    reads_positions = True
    reads_length_ratio = True

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.energies.append(RelativeEnergy(settings))
