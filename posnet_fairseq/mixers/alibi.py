"""ALiBi: attention with linear biases."""

import torch
from torch import Tensor

from posnet_fairseq.mixers.bases import ContentBasedMixer
from posnet_fairseq.ops.dtypes import float_type
from posnet_fairseq.ops.offset_gather import plus_products
from posnet_fairseq.registry import register_mixer


@register_mixer("alibi")
class ALiBi(ContentBasedMixer):
    """α̂_nm = q_n·k_m / √d - s_h |n - m|, s_h = 2^{-8h/H}: Press et al. (ICLR 2022), unnumbered Eq. of Section 3.

    h = 1 ... H is the number of the head. Slopes are not trained; for numbers of heads that are no powers of two they
    follow the same formula. In cross-attention n is ⌊γn⌋. The paper has language models without other
    positions, ``--position-embedding none``. In an encoder distances are alike in both directions, so the default is
    sinusoidal.
    """

    operations_formula = "2N²D + 4ND²"
    reads_length_ratio = True

    def prepare(self, offsets: Tensor) -> Tensor:
        """|n - m|, (N, M)."""
        return offsets.abs()

    def energy(self, q: Tensor, k: Tensor, index: Tensor) -> Tensor:
        """(B, H, N, M)."""
        heads = torch.arange(1, self.num_heads + 1, dtype=float_type(q), device=q.device)
        bias = -torch.exp2(-8 / self.num_heads * heads)[:, None, None] * index
        return plus_products(bias.to(q.dtype).unsqueeze(0), q, k)
