"""Weights of clipped offsets: beyond a distance R all tokens on one side of a query have one weight, or none."""

from dataclasses import dataclass

import torch
from torch import Tensor

from posnet_fairseq.ops.dtypes import in_float
from posnet_fairseq.ops.masking import masked_energy, softmax


@dataclass(frozen=True)
class Band:
    """The offsets n - m that have a weight of their own.

    Attributes:
        clip_distance: R.
        tails: True if offsets beyond ±R have the weights of ±R, False if they have none.
        causal: whether queries must not see the tokens that follow them.
    """

    clip_distance: int
    tails: bool
    causal: bool

    def hidden(self, offsets: Tensor) -> Tensor | None:
        """Return a mask that is True at offsets, of any shape, that are not mixed; None if all are."""
        future = offsets < 0 if self.causal else None
        if self.tails:
            return future
        outside = offsets.abs() > self.clip_distance
        return outside if future is None else outside | future

    def counts(self, tokens: int, device: torch.device | None = None) -> Tensor:
        """Return the number of tokens at each clipped offset, from -R to R, of each of N tokens, (N, 2R + 1)."""
        at = torch.arange(tokens, device=device)[:, None]
        offsets = torch.arange(-self.clip_distance, self.clip_distance + 1, device=device)
        number = ((at >= offsets) & (at - offsets < tokens)).long()
        if self.tails:
            left = (at - self.clip_distance + 1).clamp(min=0)
            right = tokens - (at + self.clip_distance).clamp(max=tokens)
            number = torch.cat([right, number[..., 1:-1], left], dim=-1)
        return number.masked_fill(offsets < 0, 0) if self.causal else number

    def softmax(self, energy: Tensor) -> Tensor:
        """Return the weight of a token at each clipped offset, in float32 or wider: the softmax over all N tokens.

        `energy` and weights: (H, N, 2R + 1).
        """
        energy = in_float(energy)
        number = self.counts(energy.size(1), energy.device).to(energy.dtype)
        energy = (energy + number.clamp(min=1).log()).masked_fill(number == 0, masked_energy(energy.dtype))
        return softmax(energy) / number.clamp(min=1)

    def visible(self, weights: Tensor) -> Tensor:
        """Return weights, (H, N, 2R + 1), with 0 at offsets at which no token is mixed."""
        return weights.masked_fill(self.counts(weights.size(1), weights.device) == 0, 0)
