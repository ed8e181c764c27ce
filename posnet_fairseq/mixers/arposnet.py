"""arPosNet: attention to absolute and to relative positions."""

from posnet_fairseq.mixers.aposnet import AbsoluteEnergy
from posnet_fairseq.mixers.bases import PLACES, ClipDistance, MixerSettings, PositionBasedMixer
from posnet_fairseq.mixers.rposnet import RelativeEnergy
from posnet_fairseq.registry import register_mixer


@register_mixer("arposnet")
class ARPosNet(PositionBasedMixer):
    """α̂_nm = aPosNet's + rPosNet's: PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 8 to 10.

    Each of the two energies has its own W_Q. ñ is as in rPosNet, learned by default.
    """

    operations_formula = "K̂ND + 2N²D + 6ND²"
    stored_operations_formula = "N²D + 3ND²"
    Config = ClipDistance
    places = PLACES
    default_gate = "gelu"
    position_embedding = "learned"
    reads_positions = True
    reads_memory_positions = True
    reads_length_ratio = True

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.energies.extend([RelativeEnergy(settings), AbsoluteEnergy(settings)])
