"""Encoder and decoder layers, pre-norm. Between the models of this package only the token mixers differ."""

from typing import Any

from torch import Tensor, nn

from posnet_fairseq.mixers.bases.decoding_state import DecodingState
from posnet_fairseq.mixers.bases.mixer_settings import MixerSettings
from posnet_fairseq.ops.dropout import Dropout
from posnet_fairseq.ops.initialization import linear
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.transformer.activations import ACTIVATIONS
from posnet_fairseq.transformer.compiling import CompilableLayer


class FeedForward(nn.Module):
    """W_2 f(W_1 LayerNorm(x)), with dropout and the residual connection."""

    def __init__(self, cfg: Any, embed_dim: int, inner_dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(embed_dim)
        self.inner: nn.Module = linear(embed_dim, inner_dim)
        self.outer = linear(inner_dim, embed_dim)
        self.activation = ACTIVATIONS[str(cfg.activation_fn)]
        self.activation_dropout = Dropout(cfg.activation_dropout, module_name=self.__class__.__name__)
        self.dropout = Dropout(cfg.dropout, module_name=self.__class__.__name__)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, D) to (B, N, D)."""
        inner = self.activation_dropout(self.activation(self.inner(self.norm(x))))
        return self.dropout.add(x, self.outer(inner))


class _SelfAttentionLayer(CompilableLayer):
    """Self-attention by the mixer of a side, then feed-forward."""

    def __init__(self, cfg: Any, mixer: MixerSettings) -> None:
        super().__init__()
        self.self_attn = get_mixer(mixer.mixer)(mixer)
        self.self_attn_norm = nn.LayerNorm(mixer.embed_dim)
        self.dropout = Dropout(cfg.dropout, module_name=self.__class__.__name__)

    def add_feed_forward(self, cfg: Any, side: str) -> None:
        """Build the second part of the layer, after all mixers: the order decides the weights that a seed gives."""
        self.feed_forward = FeedForward(cfg, getattr(cfg, f"{side}_embed_dim"), getattr(cfg, f"{side}_ffn_embed_dim"))

    def attend(
        self, x: Tensor, padding_mask: Tensor | None, positions: Tensor | None, state: DecodingState | None, rows: int
    ) -> Tensor:
        """Map (B, N, D) to (B, N, D), with the residual connection; with a state one step of decoding."""
        normed = self.self_attn_norm(x)
        if state is None:
            mixed = self.self_attn(normed, padding_mask=padding_mask, positions=positions)
        else:
            mixed = self.self_attn.step(normed, state, positions, rows)
        return self.dropout.add(x, mixed)


class EncoderLayer(_SelfAttentionLayer):
    """Self-attention by the encoder's mixer, then feed-forward."""

    def __init__(self, cfg: Any, mixer: MixerSettings) -> None:
        super().__init__(cfg, mixer)
        self.add_feed_forward(cfg, "encoder")

    def forward(self, x: Tensor, padding_mask: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """Map (B, N, D) to (B, N, D). `padding_mask` and `positions` as the mixers get them."""
        return self.feed_forward(self.attend(x, padding_mask, positions, None, 0))


class LanguageModelLayer(_SelfAttentionLayer):
    """Causal self-attention by the decoder's mixer, then feed-forward."""

    def __init__(self, cfg: Any, mixer: MixerSettings) -> None:
        super().__init__(cfg, mixer)
        self.add_feed_forward(cfg, "decoder")

    def forward(
        self, x: Tensor, positions: Tensor | None = None, state: DecodingState | None = None, rows: int = 0
    ) -> Tensor:
        """Map (B, N, D) to (B, N, D). Arguments as in :class:`DecoderLayer`."""
        return self.feed_forward(self.attend(x, None, positions, state, rows))


class DecoderLayer(_SelfAttentionLayer):
    """Causal self-attention and cross-attention by the decoder's mixers, then feed-forward."""

    def __init__(self, cfg: Any, mixer: MixerSettings, cross: MixerSettings) -> None:
        super().__init__(cfg, mixer)
        self.cross_attn = get_mixer(cross.mixer)(cross)
        # A norm of queries that the mixer does not read would be trained in vain.
        self.cross_attn_norm = nn.LayerNorm(cfg.decoder_embed_dim) if self.cross_attn.reads_queries else nn.Identity()
        self.add_feed_forward(cfg, "decoder")

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        padding_mask: Tensor | None = None,
        positions: Tensor | None = None,
        memory_positions: Tensor | None = None,
        length_ratio: tuple[int, int] = (1, 1),
        states: tuple[DecodingState, DecodingState] | None = None,
        rows: int = 0,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute one layer, for a full pass or a step.

        Args:
            x: (B, N, D); in a step N = 1.
            memory: the encoder's output, (B, M, D); not read in a step, whose state has it.
            padding_mask: (B, M), of the memory.
            positions, memory_positions: vectors of positions, as the mixers get them. They are arguments of their own
                because activation checkpointing wants tensors that have gradients by themselves.
            length_ratio: γ as source tokens, target tokens.
            states, rows: in a step, those of self-attention and cross-attention, and as in :meth:`TokenMixer.step`.
            need_weights: also return the cross-attention weights, (B or 1, H, N, M), else None.
        """
        x = self.attend(x, None, positions, None if states is None else states[0], rows)
        query = self.cross_attn_norm(x)
        if states is None:
            mixed = self.cross_attn(
                query,
                memory,
                padding_mask=padding_mask,
                positions=positions,
                memory_positions=memory_positions,
                length_ratio=length_ratio,
                need_weights=need_weights,
            )
        else:
            mixed = self.cross_attn.step(query, states[1], positions, rows, need_weights)
        mixed, weights = mixed if isinstance(mixed, tuple) else (mixed, None)
        return self.feed_forward(self.dropout.add(x, mixed)), weights
