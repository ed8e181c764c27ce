"""Multi-head attention, the Transformer's own mixer."""

import torch.nn.functional as F

from posnet_fairseq.mixers._base import TokenMixer
from posnet_fairseq.ops.heads import split_heads
from posnet_fairseq.ops.initialisation import ONE_OF_THREE, linear
from posnet_fairseq.ops.masking import at_least_float32, future_mask, masked_energy, padding_energy
from posnet_fairseq.registry import register_mixer


@register_mixer("attention", arch="transformer_pos")
class Attention(TokenMixer):
    """α̂_nm = q_n·k_m / √d, softmax: Vaswani et al. (2017); PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 1-3."""

    def __init__(self, settings):
        super().__init__(settings)
        self.query_proj = linear(settings.embed_dim, settings.embed_dim, gain=ONE_OF_THREE)
        self.key_proj = linear(settings.memory_dim, settings.embed_dim, gain=ONE_OF_THREE)

    def mix(self, query, memory, context):
        """Values mixed with the weights of their keys."""
        q = split_heads(self.query_proj(query), self.num_heads)
        k = self.of_memory("key", lambda: split_heads(self.key_proj(memory), self.num_heads), context)
        v = self.value(memory, context)
        if context.need_weights:
            weights = self._weights(q, k, context)
            return self.dropout(weights) @ v, weights
        mask = padding_energy(context.padding_mask, q.dtype)
        dropout = self.dropout.p if self.training else 0.0
        causal = self.causal and context.state is None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal), None

    def _weights(self, q, k, context):
        """The weights (B, H, N, M) that scaled_dot_product_attention keeps to itself."""
        energy = at_least_float32(q @ k.transpose(-2, -1) * self.head_dim**-0.5)
        if self.causal:
            future = future_mask(q.size(2), k.size(2), first=context.first, device=q.device)
            energy = energy.masked_fill(future, masked_energy(energy.dtype))
        if context.padding_mask is not None:
            energy = energy + padding_energy(context.padding_mask, energy.dtype)
        return energy.softmax(dim=-1).to(q)
