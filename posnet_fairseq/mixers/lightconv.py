"""LightConv: one softmax-normalised kernel a head."""

from dataclasses import dataclass

from posnet_fairseq.mixers._options import ClipDistance, option
from posnet_fairseq.mixers._position_based import PositionBasedMixer
from posnet_fairseq.ops.initialisation import table
from posnet_fairseq.ops.offsets import clip_index
from posnet_fairseq.registry import register_mixer


@register_mixer("lightconv")
class LightConv(PositionBasedMixer):
    """α̂_nm = W_h[n - m] for |n - m| ≤ K: LightConv (Wu et al., 2019); PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 14.

    W is (H, 2K + 1). The softmax runs over the positions in the window that a query may see, so weights sum to
    1 at the ends of a sentence too. Table 5 of PosNet: ``--gate none`` is "Light Convolution", ``glu`` (the default)
    is LightConv, then ``gelu``, then ``gelu`` with global context.
    """

    @dataclass
    class Config(ClipDistance):
        """A window, or all of the sentence."""

        lightconv_global_context: bool = option(
            "LightConv sees beyond the window, with the outermost weights of the kernel (PosNet Section 7.3)",
            default=False,
        )

    default_gate = "glu"

    def __init__(self, settings):
        super().__init__(settings)
        self.clip_distance = settings.options.clip_distance
        self.global_context = settings.options.lightconv_global_context
        self.weight = table(settings.num_heads, 2 * self.clip_distance + 1)

    def energy(self, offsets, positions, memory_positions):
        """The kernel along every row."""
        return self.weight[:, clip_index(offsets, self.clip_distance)]

    def hidden(self, offsets):
        """Also what lies outside of the window."""
        future = super().hidden(offsets)
        if self.global_context:
            return future
        outside = offsets.abs() > self.clip_distance
        return outside if future is None else outside | future
