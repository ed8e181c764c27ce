"""GaussianNet: fixed bell curves around neighboring positions."""

import math

import torch
from torch import Tensor

from posnet_fairseq.mixers.bases import BandedMixer, Energy, MixerSettings
from posnet_fairseq.mixers.bases.recomputed import RecomputedBuffer
from posnet_fairseq.registry import register_mixer

# Heads take these in turn: the neighbor on the left, the token itself, the one on the right (which a decoder lacks).
CENTERS = {"encoder": (-1, 0, 1), "decoder": (-1, 0)}


def centers(place: str, num_heads: int) -> list[int]:
    """o_h, where each head looks from its query."""
    cycle = CENTERS[place]
    return [cycle[head % len(cycle)] for head in range(num_heads)]


class Curves(Energy, RecomputedBuffer):
    """exp(-(m - n - o_h)² / 2) / √(2π): PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 12 with σ = 1."""

    # Beyond it weights are below 1e-49, less than the smallest number in float32.
    reach = 16

    distances: Tensor

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__()
        self.centers = centers(settings.place, settings.num_heads)
        self.register_buffer("distances", torch.tensor(self._distances()), persistent=False)

    def _distances(self) -> list[list[list[int]]]:
        steps = range(self.reach, -self.reach - 1, -1)  # m - n
        return [[[step - center for step in steps]] for center in self.centers]

    def computed_buffer(self) -> tuple[str, Tensor]:
        """Return the distances."""
        return "distances", torch.tensor(self._distances(), device="cpu")

    def table(self, at: Tensor, keys: int, positions: Tensor | None, memory_positions: Tensor | None) -> Tensor:
        """(H, 1, 2R + 1): every query has the same. In float64, whatever the model's precision."""
        return torch.exp(-(self.distances.double() ** 2) / 2) / math.sqrt(2 * math.pi)


@register_mixer("gaussiannet")
class GaussianNet(BandedMixer):
    """α_nm = exp(-(m - n - o_h)² / 2) / √(2π), no softmax: You et al. (2020); PosNet (WMT 2023) Eq. 12 with σ = 1."""

    operations_formula = "N²D + 2ND²"
    softmax = False
    tails = False

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.energies.append(Curves(settings))
