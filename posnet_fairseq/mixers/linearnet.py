"""LinearNet: a trained matrix over positions."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posnet_fairseq.mixers.bases import MixerSettings, PositionBasedMixer
from posnet_fairseq.registry import register_mixer
from posnet_fairseq.shared.errors import UsageError, option

MOST_POSITIONS = 4096


@register_mixer("linearnet")
class LinearNet(PositionBasedMixer):
    """α_nm = W_nm, no softmax: MLP-Mixer (Tolstikhin et al., 2021); PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 13.

    W is (H, L, L), L the longest sentence. Padding, and in the decoder the future, counts 0.
    """

    operations_formula = "N²D + 2ND²"
    softmax = False

    @classmethod
    def check(cls, settings: MixerSettings) -> None:
        """W grows with the square of the longest sentence."""
        if settings.max_positions > MOST_POSITIONS:
            side = "source" if settings.place == "encoder" else "target"
            raise UsageError(
                f"{option(f'max_{side}_positions')} {settings.max_positions}: {cls.name} trains a matrix of that many "
                f"rows and columns for every head of every layer. Give at most {MOST_POSITIONS}, such as 128."
            )

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        length = settings.max_positions
        self.weight = nn.Parameter(torch.empty(settings.num_heads, length, length))
        for matrix in self.weight:
            nn.init.xavier_uniform_(matrix)

    def energy(self, offsets: Tensor, positions: Tensor | None, memory_positions: Tensor | None) -> Tensor:
        """Rows and columns of W; a batch padded beyond L has zeros there."""
        queries, keys = offsets.shape
        length = self.weight.size(1)
        return F.pad(self.weight[:, :queries, :keys], (0, max(0, keys - length), 0, max(0, queries - length)))
