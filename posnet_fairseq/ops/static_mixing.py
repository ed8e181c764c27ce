"""Mixing with static weights, which no token decides: in tables for all sentences of a batch, or in bands."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from posnet_fairseq.ops import kernels
from posnet_fairseq.ops.band import Band, mix_band
from posnet_fairseq.ops.masking import masked_energy, softmax

# Where real tokens have a smaller share of a query's weight than this (or 1e-10), each sentence is computed by itself:
# dividing by so small a share would lose digits.
SMALLEST_SHARE = {torch.float16: 2.0**-6}


@dataclass(frozen=True)
class SharedWeights:
    """Weights (H, N, M) shared by all sentences."""

    weights: Tensor

    def real_share(self, padding_mask: Tensor) -> Tensor:
        """Return the share of each query's weight on real tokens: (B, H, N) for a mask (B, M), True at padding."""
        return (self.weights @ (~padding_mask).T.to(self.weights.dtype)).permute(2, 0, 1)

    def mix(self, value: Tensor) -> Tensor:
        """Return weighted sums (B, H, N, d) of values (B, H, M, d)."""
        batch, heads, keys, width = value.shape
        weights, queries = self.weights.to(value.dtype), self.weights.size(1)
        if batch == 1 or queries == 1:
            return weights @ value
        # The batch is folded into columns, so that one product per head serves every sentence.
        columns = value.permute(1, 2, 0, 3).reshape(heads, keys, batch * width)
        return (weights @ columns).view(heads, queries, batch, width).permute(2, 0, 1, 3)


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


StaticWeights = SharedWeights | BandWeights


def is_exact(share: Tensor, dtype: torch.dtype, padded_queries: Tensor | None) -> bool:
    """Return whether the weight on padding can be taken out of sums over all tokens without losing digits.

    `share` is that of :meth:`SharedWeights.real_share`; `padded_queries`, (B, N), do not matter.
    """
    real = share if padded_queries is None else share.masked_fill(padded_queries[:, None], 1)
    return bool(real.min() >= SMALLEST_SHARE.get(dtype, 1e-10))


def mix_real(weights: StaticWeights, value: Tensor, share: Tensor) -> Tensor:
    """Return weighted means of the real tokens of each sentence, (B, H, N, d), by weights of all tokens.

    The weight on padding is taken out of the sums and out of what they are divided by; :func:`is_exact` tells whether
    that is exact. Weights sum to 1; values are zeros at padding; `share` is that of :meth:`SharedWeights.real_share`.
    """
    smallest = SMALLEST_SHARE.get(value.dtype, 1e-10)
    return (weights.mix(value) / share.masked_fill(share < smallest, 1)[..., None]).to(value.dtype)
