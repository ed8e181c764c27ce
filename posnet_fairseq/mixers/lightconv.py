"""LightConv: one softmax-normalized kernel a head."""

from dataclasses import dataclass

from torch import Tensor

from posnet_fairseq.mixers.bases import BandedMixer, ClipDistance, Energy, MixerSettings, option
from posnet_fairseq.ops.initialization import table
from posnet_fairseq.registry import register_mixer


class Kernel(Energy):
    """W_h[clip(n - m, ±K)]: PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 14."""

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__()
        self.reach, self.cells = settings.options.clip_distance, settings.cells
        self.weight = table(settings.num_heads, self.buckets.rows)

    def table(self, at: Tensor, keys: int, positions: Tensor | None, memory_positions: Tensor | None) -> Tensor:
        """(H, 1, 2K + 1): every query has the same."""
        return self.weight[:, None]


@register_mixer("lightconv")
class LightConv(BandedMixer):
    """α̂_nm = W_h[n - m] for |n - m| ≤ K: LightConv (Wu et al., 2019); PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 14.

    W is (H, 2K + 1). The softmax runs over the positions in the window that a query may see, so weights sum to
    1 at the ends of a sentence too. Table 5 of PosNet: ``--gate none`` is "Light Convolution", ``glu`` (the default)
    is LightConv, then ``gelu``, then ``gelu`` with global context. On a grid W has a weight for every pair of offsets
    in the window, and one for pairs with an extra token, which are in it.
    """

    operations_formula = "N²D + 3ND²"

    @dataclass
    class Config(ClipDistance):
        """A window, or all of the sentence."""

        lightconv_global_context: bool = option(
            "LightConv sees beyond the window, with the outermost weights of the kernel (PosNet Section 7.3)",
            default=False,
        )

    GridConfig = Config
    default_gate = "glu"

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.tails = settings.options.lightconv_global_context
        self.energies.append(Kernel(settings))
