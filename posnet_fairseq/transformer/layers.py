"""Encoder and decoder layers, pre-norm. Between the models of this package only the token mixers differ."""

from fairseq import utils
from fairseq.distributed import fsdp_wrap
from fairseq.modules import FairseqDropout, LayerDropModuleList, LayerNorm
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import nn

from posnet_fairseq.mixers._base import MixingContext
from posnet_fairseq.model_config import build_mixer
from posnet_fairseq.ops.initialisation import linear


class FeedForward(nn.Module):
    """W_2 f(W_1 LayerNorm(x)), with dropout and the residual connection."""

    def __init__(self, cfg, embed_dim, inner_dim):
        super().__init__()
        self.norm = LayerNorm(embed_dim)
        self.inner = linear(embed_dim, inner_dim)
        self.outer = linear(inner_dim, embed_dim)
        self.activation = utils.get_activation_fn(cfg.activation_fn)
        self.activation_dropout = FairseqDropout(cfg.activation_dropout, module_name=self.__class__.__name__)
        self.dropout = FairseqDropout(cfg.dropout, module_name=self.__class__.__name__)

    def forward(self, x):
        """(B, N, D) to (B, N, D)."""
        inner = self.activation_dropout(self.activation(self.inner(self.norm(x))))
        return x + self.dropout(self.outer(inner))


class EncoderLayer(nn.Module):
    """Self-attention by the encoder's mixer, then feed-forward."""

    def __init__(self, cfg):
        super().__init__()
        self.self_attn = build_mixer(cfg, "encoder")
        self.self_attn_norm = LayerNorm(cfg.encoder_embed_dim)
        self.dropout = FairseqDropout(cfg.dropout, module_name=self.__class__.__name__)
        self.feed_forward = FeedForward(cfg, cfg.encoder_embed_dim, cfg.encoder_ffn_embed_dim)

    def forward(self, x, padding_mask=None, positions=None):
        """(B, N, D) to (B, N, D). `padding_mask` and `positions` as in :class:`MixingContext`."""
        normed = self.self_attn_norm(x)
        context = MixingContext(positions=positions, padding_mask=padding_mask)
        mixed, _ = self.self_attn(normed, normed, context)
        return self.feed_forward(x + self.dropout(mixed))


class DecoderLayer(nn.Module):
    """Causal self-attention and cross-attention by the decoder's mixers, then feed-forward."""

    def __init__(self, cfg):
        super().__init__()
        self.self_attn = build_mixer(cfg, "decoder")
        self.self_attn_norm = LayerNorm(cfg.decoder_embed_dim)
        self.cross_attn = build_mixer(cfg, "cross")
        self.cross_attn_norm = LayerNorm(cfg.decoder_embed_dim)
        self.dropout = FairseqDropout(cfg.dropout, module_name=self.__class__.__name__)
        self.feed_forward = FeedForward(cfg, cfg.decoder_embed_dim, cfg.decoder_ffn_embed_dim)

    def forward(
        self,
        x,
        memory,
        memory_padding_mask=None,
        positions=None,
        first=0,
        incremental_state=None,
        need_attn=False,
    ):
        """One layer for a full pass or a step.

        Args:
            x: (B, N, D); in a step N = 1.
            memory: the encoder's output, (B, M, D).
            memory_padding_mask, positions, first: as in :class:`MixingContext`.
            incremental_state: fairseq's, in a step.
            need_attn: also return the cross-attention weights.

        Returns:
            (B, N, D), and (B, H, N, M) or None.
        """
        normed = self.self_attn_norm(x)
        context = MixingContext(
            positions=positions,
            first=first,
            state=self.self_attn.decoding_state(incremental_state),
        )
        mixed, _ = self.self_attn(normed, normed, context)
        x = x + self.dropout(mixed)

        context = MixingContext(
            padding_mask=memory_padding_mask,
            first=first,
            state=self.cross_attn.decoding_state(incremental_state),
            need_weights=need_attn,
        )
        mixed, attn = self.cross_attn(self.cross_attn_norm(x), memory, context)
        return self.feed_forward(x + self.dropout(mixed)), attn


def layer_stack(cfg, layer, count, layerdrop):
    """`count` layers in fairseq's list: LayerDrop, activation checkpointing and sharding as for its own models."""

    def build():
        built = layer(cfg)
        if cfg.checkpoint_activations or cfg.offload_activations:
            built = checkpoint_wrapper(built, offload_to_cpu=cfg.offload_activations)
        return fsdp_wrap(built)

    layers = LayerDropModuleList(p=layerdrop) if layerdrop > 0 else nn.ModuleList()
    layers.extend(build() for _ in range(count))
    return layers
