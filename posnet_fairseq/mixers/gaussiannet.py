"""GaussianNet: fixed bell curves around neighbouring positions."""

import math

import torch

from posnet_fairseq.mixers._position_based import PositionBasedMixer
from posnet_fairseq.registry import register_mixer

# Heads take these in turn: the neighbour on the left, the token itself, the one on the right (which a decoder has not).
CENTRES = {"encoder": (-1, 0, 1), "decoder": (-1, 0)}


def centres(place, num_heads):
    """o_h, where each head looks from its query: (H,), whole numbers."""
    cycle = CENTRES[place]
    return torch.tensor([cycle[head % len(cycle)] for head in range(num_heads)])


@register_mixer("gaussiannet")
class GaussianNet(PositionBasedMixer):
    """α_nm = exp(-(m - n - o_h)² / 2) / √(2π), no softmax: You et al. (2020); PosNet (WMT 2023) Eq. 12 with σ = 1."""

    softmax = False

    def __init__(self, settings):
        super().__init__(settings)
        self.register_buffer("centres", centres(settings.place, settings.num_heads), persistent=False)

    def energy(self, offsets, positions, memory_positions):
        """The curves: computed once for every distance, then spread over the pairs."""
        queries, keys = offsets.shape
        neighbours = torch.arange(1 - keys, queries, device=offsets.device)
        curves = torch.exp(-((neighbours + self.centres[:, None]) ** 2).double() / 2) / math.sqrt(2 * math.pi)
        return curves.to(self.out_proj.weight)[:, offsets + keys - 1]
