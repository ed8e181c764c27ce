"""rPosNet: attention of absolute to relative positions."""

from posnet_fairseq.mixers._options import ClipDistance
from posnet_fairseq.mixers._position_based import PositionBasedMixer
from posnet_fairseq.ops.initialisation import linear, table
from posnet_fairseq.ops.offsets import clipped_offsets
from posnet_fairseq.registry import register_mixer


@register_mixer("rposnet")
class RPosNet(PositionBasedMixer):
    """α̂_nm = (W_Q ñ)·E_rel[clip(n - m, ±K)] / √d: PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 9 and 10.

    ñ is a learned embedding after one LayerNorm. E_rel, (2K + 1, D), is this layer's own and split over
    heads; its rows run from K or more to the right to K or more to the left.
    """

    Config = ClipDistance
    position_embedding = "learned"

    def __init__(self, settings):
        super().__init__(settings)
        self.clip_distance = settings.options.clip_distance
        self.query_proj = linear(settings.embed_dim, settings.embed_dim)
        self.relative = table(2 * self.clip_distance + 1, settings.embed_dim)

    def energy(self, query_positions, memory_positions):
        """(N, D) and (M, D) to (H, N, M); of the memory's vectors only the number counts."""
        q = self.query_proj(query_positions).unflatten(1, (self.num_heads, self.head_dim))
        relative = self.relative.unflatten(1, (self.num_heads, self.head_dim))
        per_offset = q.transpose(0, 1) @ relative.permute(1, 2, 0) * self.head_dim**-0.5
        offsets = clipped_offsets(len(query_positions), len(memory_positions), self.clip_distance, device=q.device)
        return per_offset.gather(2, offsets.expand(self.num_heads, -1, -1))
