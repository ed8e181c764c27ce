"""Weights of clipped offsets, which mix by torch's operations or by kernels."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from posnet_fairseq.ops import kernels
from posnet_fairseq.ops.band import Band, mix_band
from posnet_fairseq.ops.masking import masked_energy
from posnet_fairseq.ops.softmax import softmax


@dataclass(frozen=True)
class BandWeights:
    """Weights of clipped offsets, shared by all sentences or of each sentence.

    Attributes:
        band: the offsets that have weights.
        length_ratio: γ as (source tokens, target tokens).
        weights: (H, N, 2R + 1), 0 at hidden offsets of queries that meet a token; of each sentence (B, H, N, 2R + 1).
    """

    band: Band
    length_ratio: tuple[int, int]
    weights: Tensor

    @classmethod
    def softmax(cls, band: Band, length_ratio: tuple[int, int], energy: Tensor, keys: int | Tensor) -> "BandWeights":
        """Return the softmax of energies, (H, N, 2R + 1), over the M tokens of a sentence, in float32 or wider.

        `keys` is M, or (B, 1, 1) that of each sentence.
        """
        energy = energy.to(torch.promote_types(energy.dtype, torch.float32))
        number = band.counts(energy.size(1), keys, length_ratio, energy.device).to(energy.dtype).unsqueeze(-3)
        # Finite: where a query meets no token, or padding only, there is no number at all.
        energy = (energy + number.clamp(min=1).log()).masked_fill(number == 0, masked_energy(energy.dtype))
        return cls(band, length_ratio, softmax(energy) / number.clamp(min=1))

    @classmethod
    def plain(cls, band: Band, length_ratio: tuple[int, int], weights: Tensor, keys: int) -> "BandWeights":
        """Return weights, (H, N, 2R + 1), without a softmax, set to 0 at hidden offsets."""
        number = band.counts(weights.size(1), keys, length_ratio, weights.device)
        return cls(band, length_ratio, weights.masked_fill(number == 0, 0))

    def real_share(self, padding_mask: Tensor) -> Tensor:
        """Return the share of each query's weight on real tokens: (B, H, N) for a mask (B, M), True at padding."""
        lengths = (~padding_mask).sum(dim=1)[:, None, None]
        number = self.band.counts(self.weights.size(1), lengths, self.length_ratio, self.weights.device)
        return torch.einsum("hnj,bnj->bhn", self.weights, number.to(self.weights.dtype))

    def mix(self, value: Tensor) -> Tensor:
        """Return weighted sums (B, H, N, d) of values (B, H, M, d), 0 at padding, see :func:`mix_band`."""
        mix: Callable[[Tensor, Tensor, Band, tuple[int, int]], Tensor] = mix_band
        if kernels.are_used(value):
            from posnet_fairseq.ops.kernels import band_kernels

            mix = band_kernels.mix_band
        if self.weights.dim() == 3:
            return mix(self.weights, value, self.band, self.length_ratio)
        # The heads of all sentences are those of one.
        mixed = mix(self.weights.flatten(0, 1), value.flatten(0, 1)[None], self.band, self.length_ratio)
        return mixed.view(*self.weights.shape[:3], value.size(3))
