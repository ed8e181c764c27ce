"""FourierNet and FNet: tokens mixed by the discrete Fourier transform."""

from dataclasses import dataclass

import torch
from torch import Tensor

from posnet_fairseq.mixers.bases import Mixed, MixerSettings, MixingContext, Options, TokenMixer, option
from posnet_fairseq.ops.dtypes import float_type
from posnet_fairseq.ops.fourier import cosines_and_sines, per_length, real_transform
from posnet_fairseq.ops.host_sync import may_look_at
from posnet_fairseq.registry import register_mixer
from posnet_fairseq.shared import errors


@register_mixer("fouriernet")
class FourierNet(TokenMixer):
    """c_n = Re Σ_m exp(-2πi·nm/M) v_m / √M: FNet (Lee-Thorp et al., 2022); PosNet (WMT 2023) Section 2.2 and Eq. 11.

    M is the true length of a sentence, so a decoder, which does not know it, cannot use this mixer: the
    architectures have attention there. There are no mixing weights to drop out.

    ``--fourier-2d`` is FNet itself, Eq. 11: a transform over positions and features without a factor, no values, no
    gate, no output projection.
    """

    operations_formula = "N²D + 2ND²"

    @dataclass
    class Config(Options):
        """FourierNet or FNet."""

        fourier_2d: bool = option(
            "FNet itself: transform positions and features, without values and output projection (PosNet Eq. 11)",
            default=False,
        )

    places = ("encoder",)
    static = True
    hides_pairs = False
    drops_weights = False

    @classmethod
    def check(cls, settings: MixerSettings) -> None:
        """FNet has no values that could be gated."""
        if settings.options.fourier_2d and settings.gate != "none":
            fourier_2d = errors.option("fourier_2d")
            raise errors.UsageError(
                f"gate {settings.gate}: with {fourier_2d} there are no values to gate. Leave out one of the two."
            )

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.two_dimensional = settings.options.fourier_2d
        if self.two_dimensional:
            self.gating = self.out_proj = None  # type: ignore[assignment]  # FNet has neither

    def mix_and_project(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
        """The transformed tokens; there are no weights to return."""
        assert memory is not None
        padding_mask = context.padding_mask
        if padding_mask is not None and not may_look_at(padding_mask):
            return self._without_lengths(query, memory, padding_mask), None
        if self.two_dimensional:
            return per_length(lambda x: torch.fft.fft2(x).real, memory, padding_mask), None
        mixed = per_length(real_transform, self.gating.value(memory), padding_mask)
        return self.out_proj(self.gating(mixed, query)), None

    def _without_lengths(self, query: Tensor, memory: Tensor, padding_mask: Tensor) -> Tensor:
        """Transform by a product for each sentence, where its length may not be looked at."""
        dtype = float_type(memory)
        cosines, sines = cosines_and_sines(padding_mask, dtype)
        if self.two_dimensional:
            features = torch.fft.fft(memory.to(dtype), dim=2)
            return (cosines @ features.real + sines @ features.imag).to(memory.dtype)
        lengths = (~padding_mask).sum(dim=1).clamp(min=1)[:, None, None].to(dtype)
        mixed = cosines @ self.gating.value(memory).to(dtype) / lengths.sqrt()
        return self.out_proj(self.gating(mixed.to(memory.dtype), query))
