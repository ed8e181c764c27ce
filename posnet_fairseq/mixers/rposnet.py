"""rPosNet: attention of absolute to relative positions."""

from torch import nn

from posnet_fairseq.mixers._base import PLACES
from posnet_fairseq.mixers._options import ClipDistance
from posnet_fairseq.mixers._position_based import PositionBasedMixer
from posnet_fairseq.ops.heads import split_table
from posnet_fairseq.ops.initialisation import linear, table
from posnet_fairseq.ops.offsets import clip_index
from posnet_fairseq.ops.relative import spread
from posnet_fairseq.registry import register_mixer


class RelativeEnergy(nn.Module):
    """(W_Q ñ)·E_rel[clip(⌊γn⌋ - m, ±K)] / √d: PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 9 and 10."""

    def __init__(self, settings):
        super().__init__()
        self.num_heads = settings.num_heads
        self.clip_distance = settings.options.clip_distance
        self.query_proj = linear(settings.embed_dim, settings.embed_dim)
        self.relative = table(2 * self.clip_distance + 1, settings.embed_dim)

    def table(self, offsets, positions, memory_positions):
        """What can be stored before inference, (H, N, 2K + 1)."""
        q = self.query_proj(positions[: len(offsets)]).unflatten(1, (self.num_heads, -1))
        return q.transpose(0, 1) @ split_table(self.relative, self.num_heads).mT * q.size(-1) ** -0.5

    def forward(self, offsets, positions, memory_positions):
        """As :meth:`PositionBasedMixer.energy`."""
        return spread(self.table(offsets, positions, memory_positions), clip_index(offsets, self.clip_distance))


@register_mixer("rposnet")
class RPosNet(PositionBasedMixer):
    """α̂_nm = (W_Q ñ)·E_rel[clip(⌊γn⌋ - m, ±K)] / √d: PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 9 and 10.

    ñ is a learned embedding after one LayerNorm. E_rel, (2K + 1, D), is this layer's own and split over
    heads; its rows run from K or more to the right to K or more to the left. γ is 1 in self-attention.
    """

    Config = ClipDistance
    places = PLACES
    default_gate = "gelu"
    position_embedding = "learned"
    reads_positions = True
    reads_length_ratio = True

    def __init__(self, settings):
        super().__init__(settings)
        self.energies.append(RelativeEnergy(settings))
