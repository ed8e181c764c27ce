"""Multi-head attention, the Transformer's own mixer."""

import torch.nn.functional as F
from torch import Tensor

from posnet_fairseq.mixers.bases import ContentBasedMixer, Mixed, MixingContext, Options
from posnet_fairseq.ops.masking import padding_energy
from posnet_fairseq.registry import register_mixer


@register_mixer("attention", arch="transformer_pos")
class Attention(ContentBasedMixer):
    """α̂_nm = q_n·k_m / √d: Vaswani et al. (2017); PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 1-3."""

    operations_formula = "2N²D + 4ND²"
    GridConfig = Options

    def mix(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
        """Mix by torch's own kernel, which returns no weights and is not used with a mask of pairs."""
        if context.need_weights or context.hidden is not None:
            return super().mix(query, memory, context)
        q, k, v = self.project_queries(query, context), self.keys(memory, context), self.value(memory, context)
        mask = padding_energy(context.padding_mask, q.dtype)
        if context.state is not None and q.device.type == "cpu" and not self.drop_probability:
            # With few queries the kernel is several times slower than plain products on CPUs.
            energy = (q * self.scale) @ k.mT
            return (energy if mask is None else energy + mask).softmax(dim=-1) @ v, None
        causal = self.causal and context.state is None
        if causal:  # tokens see no padding, which follows them; torch 2.15 takes no mask beside is_causal
            mask = None
        mixed = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=self.drop_probability, is_causal=causal)
        return mixed, None
