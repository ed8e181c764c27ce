"""Encoder and decoder layers, pre-norm. Between the models of this package only the token mixers differ."""

from dataclasses import replace

from fairseq import utils
from fairseq.distributed import fsdp_wrap
from fairseq.modules import FairseqDropout, LayerDropModuleList, LayerNorm
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import nn

from posnet_fairseq.mixers.bases.token_mixer import MixingContext
from posnet_fairseq.ops.initialisation import linear
from posnet_fairseq.transformer.options import build_mixer


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


class _SelfAttentionLayer(nn.Module):
    """What all layers begin with: self-attention by the mixer of their side."""

    def __init__(self, cfg, side, layer, **settings):
        super().__init__()
        self.self_attn = build_mixer(cfg, side, layer, **settings)
        self.self_attn_norm = LayerNorm(getattr(cfg, f"{side}_embed_dim"))
        self.dropout = FairseqDropout(cfg.dropout, module_name=self.__class__.__name__)

    def attend(self, x, context):
        """(B, N, D) to (B, N, D), with the residual connection."""
        normed = self.self_attn_norm(x)
        mixed, _ = self.self_attn(normed, normed, context)
        return x + self.dropout(mixed)


class EncoderLayer(_SelfAttentionLayer):
    """Self-attention by the encoder's mixer, then feed-forward."""

    def __init__(self, cfg, layer):
        super().__init__(cfg, "encoder", layer)
        self.feed_forward = FeedForward(cfg, cfg.encoder_embed_dim, cfg.encoder_ffn_embed_dim)

    def forward(self, x, padding_mask=None, positions=None):
        """(B, N, D) to (B, N, D). `padding_mask` and `positions` as in :class:`MixingContext`."""
        return self.feed_forward(self.attend(x, MixingContext(positions=positions, padding_mask=padding_mask)))


class LanguageModelLayer(_SelfAttentionLayer):
    """Causal self-attention by the decoder's mixer, then feed-forward.

    As in the GPTs of the Translution paper, projections to queries, keys and values have no biases.
    """

    def __init__(self, cfg, layer):
        super().__init__(cfg, "decoder", layer, projection_bias=False)
        self.feed_forward = FeedForward(cfg, cfg.decoder_embed_dim, cfg.decoder_ffn_embed_dim)

    def forward(self, x, context, positions=None, incremental_state=None):
        """(B, N, D) to (B, N, D). Arguments as those of :class:`DecoderLayer`."""
        state = self.self_attn.decoding_state(incremental_state)
        return self.feed_forward(self.attend(x, replace(context, positions=positions, state=state)))


class DecoderLayer(_SelfAttentionLayer):
    """Causal self-attention and cross-attention by the decoder's mixers, then feed-forward."""

    def __init__(self, cfg, layer):
        super().__init__(cfg, "decoder", layer)
        self.cross_attn = build_mixer(cfg, "cross", layer)
        # Where no query token has a part in it, a norm of them would be trained in vain.
        self.cross_attn_norm = LayerNorm(cfg.decoder_embed_dim) if self.cross_attn.reads_queries else nn.Identity()
        self.feed_forward = FeedForward(cfg, cfg.decoder_embed_dim, cfg.decoder_ffn_embed_dim)

    def forward(
        self,
        x,
        memory,
        self_context,
        cross_context,
        positions=None,
        memory_positions=None,
        incremental_state=None,
    ):
        """One layer for a full pass or a step.

        Args:
            x: (B, N, D); in a step N = 1.
            memory: the encoder's output, (B, M, D).
            self_context, cross_context: a :class:`MixingContext` for each of the two mixers, without vectors of
                positions and states.
            positions, memory_positions: as in :class:`MixingContext`. Activation checkpointing wants tensors that
                have gradients by themselves.
            incremental_state: fairseq's, in a step.

        Returns:
            (B, N, D), and the cross-attention weights if their context asks for them, (B or 1, H, N, M), else None.
        """
        state = self.self_attn.decoding_state(incremental_state)
        x = self.attend(x, replace(self_context, positions=positions, state=state))

        state = self.cross_attn.decoding_state(incremental_state)
        context = replace(cross_context, positions=positions, memory_positions=memory_positions, state=state)
        mixed, attn = self.cross_attn(self.cross_attn_norm(x), memory, context)
        return self.feed_forward(x + self.dropout(mixed)), attn


def layer_stack(cfg, layer, count, layerdrop):
    """`count` layers, each `layer` (cfg, index), in fairseq's list.

    LayerDrop, activation checkpointing and sharding work as for fairseq's own models.
    """

    def build(index):
        built = layer(cfg, index)
        if cfg.checkpoint_activations or cfg.offload_activations:
            built = checkpoint_wrapper(built, offload_to_cpu=cfg.offload_activations)
        return fsdp_wrap(built)

    layers = LayerDropModuleList(p=layerdrop) if layerdrop > 0 else nn.ModuleList()
    layers.extend(build(index) for index in range(count))
    return layers
