"""Multi-head attention, the Transformer's own mixer."""

import torch
import torch.nn.functional as F
from torch import Tensor

from posnet_fairseq.mixers.bases import ContentBasedMixer, Mixed, MixingContext, Options
from posnet_fairseq.ops.dropout import is_by_16_bits
from posnet_fairseq.ops.masking import padding_energy, softmax
from posnet_fairseq.registry import register_mixer


@register_mixer("attention", arch="transformer_pos")
class Attention(ContentBasedMixer):
    """α̂_nm = q_n·k_m / √d: Vaswani et al. (2017); PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 1-3."""

    operations_formula = "2N²D + 4ND²"
    GridConfig = Options

    def mix(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
        """Mix by torch's own kernel, which returns no weights and is not used with a mask of pairs."""
        # On CPUs, the kernel draws 64 random bits per mixing weight, where posnet's dropout draws 16, and in 16 bits
        # its backward pass takes up to nine times as long as that of plain products. These need the weights in memory,
        # where they are kept for the backward pass only if the sequence is short.
        is_slow = is_by_16_bits(query, self.drop_probability) or _is_trained_in_16_bits(query)
        is_slow = is_slow and memory is not None and not self.should_recompute(memory.size(1))
        if context.need_weights or context.hidden is not None or is_slow:
            return super().mix(query, memory, context)
        q, state = self.project_queries(query, context), context.state
        # With few queries the kernel is several times slower than plain products on CPUs.
        plain = state is not None and q.device.type == "cpu" and not self.drop_probability
        if plain and self.causal and state is not None and state.in_place:
            k, v = self.project_keys(memory, context), self.project_values(memory)
            q, k, v, hidden = state.share(q, k, v)
            mixed = softmax((q * self.scale) @ k.mT + hidden) @ v
            return mixed.transpose(1, 2).flatten(0, 1).unsqueeze(2), None
        k, v = self.keys(memory, context), self.value(memory, context)
        mask = padding_energy(context.padding_mask, q.dtype)
        if plain:
            energy = (q * self.scale) @ k.mT
            return softmax(energy if mask is None else energy + mask) @ v, None
        causal = self.causal and context.state is None
        if causal:  # tokens see no padding, which follows them; torch 2.15 takes no mask beside is_causal
            mask = None
        mixed = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=self.drop_probability, is_causal=causal)
        return mixed, None


def _is_trained_in_16_bits(query: Tensor) -> bool:
    is_trained_on_cpu = torch.is_grad_enabled() and query.device.type == "cpu"
    return is_trained_on_cpu and (query.dtype.itemsize == 2 or torch.is_autocast_enabled("cpu"))
