"""arPosNet: attention to absolute and to relative positions."""

from posnet_fairseq.mixers.aposnet import AbsoluteEnergy
from posnet_fairseq.mixers.rposnet import RPosNet
from posnet_fairseq.registry import register_mixer


@register_mixer("arposnet")
class ARPosNet(RPosNet):
    """α̂_nm = aPosNet's + rPosNet's: PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 8 to 10.

    Each of the two energies has its own W_Q. ñ is as in rPosNet, learned by default.
    """

    reads_memory_positions = True

    def __init__(self, settings):
        super().__init__(settings)
        self.energies.append(AbsoluteEnergy(settings))
