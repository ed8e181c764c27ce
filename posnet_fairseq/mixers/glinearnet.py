"""gLinearNet: LinearNet with a gate."""

from posnet_fairseq.mixers.linearnet import LinearNet
from posnet_fairseq.registry import register_mixer


@register_mixer("glinearnet")
class GLinearNet(LinearNet):
    """α_nm = W_nm, gated: gMLP (Liu et al., 2021); PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 4 and 13."""

    operations_formula = "N²D + 3ND²"
    default_gate = "gelu"
