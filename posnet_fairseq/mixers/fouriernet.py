"""FourierNet and FNet: tokens mixed by the discrete Fourier transform."""

from dataclasses import dataclass

import torch

from posnet_fairseq.mixers.bases.operations import MixingSize
from posnet_fairseq.mixers.bases.options import option
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops.fourier import per_length, real_transform
from posnet_fairseq.registry import register_mixer
from posnet_fairseq.shared.errors import UsageError


@register_mixer("fouriernet")
class FourierNet(TokenMixer):
    """c_n = Re Σ_m exp(-2πi·nm/M) v_m / √M: FNet (Lee-Thorp et al., 2022); PosNet (WMT 2023) Section 2.2 and Eq. 11.

    M is the true length of a sentence, so a decoder, which does not know it, cannot use this mixer: the
    architectures have attention there. There are no mixing weights to drop out.

    ``--fourier-2d`` is FNet itself, Eq. 11: a transform over positions and features without a factor, no values, no
    gate, no output projection.
    """

    @dataclass
    class Config:
        """FourierNet or FNet."""

        fourier_2d: bool = option(
            "FNet itself: transform positions and features, without values and output projection (PosNet Eq. 11)",
            default=False,
        )

    places = ("encoder",)
    static = True

    @classmethod
    def check(cls, settings):
        """FNet has no values that could be gated."""
        if settings.options.fourier_2d and settings.gate != "none":
            raise UsageError(
                f"--gate {settings.gate}: with --fourier-2d there are no values to gate. Give --gate none, "
                "or leave out --fourier-2d."
            )

    def __init__(self, settings):
        super().__init__(settings)
        self.two_dimensional = settings.options.fourier_2d
        if self.two_dimensional:
            self.gating = self.out_proj = None

    def forward(self, query, memory, context):
        """As :meth:`TokenMixer.forward`; there are no weights to return."""
        self.check_call(query, memory, context)
        if self.two_dimensional:
            return per_length(lambda x: torch.fft.fft2(x).real, memory, context.padding_mask), None
        mixed = per_length(real_transform, self.gating.value(memory), context.padding_mask)
        return self.out_proj(self.gating(mixed, query)), None

    def operations(self, size: MixingSize) -> float:
        """Multiplications of the projections and of a matrix of cosines; FNet has fast transforms alone."""
        if self.two_dimensional:
            return 0
        return self.projection_operations(size) + size.queries * size.keys * size.embed_dim
