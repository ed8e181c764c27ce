"""Layers of encoder and decoder, pre-norm, and stacks of them. Between the models only the token mixers differ."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

from torch import Tensor, nn

from posnet_fairseq.mixers.bases.decoding_state import DecodingState
from posnet_fairseq.mixers.bases.mixer_settings import MixerSettings, side_of
from posnet_fairseq.mixers.bases.positions import Positions
from posnet_fairseq.ops.dropout import Dropout
from posnet_fairseq.ops.initialization import linear
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.transformer.activations import ACTIVATIONS
from posnet_fairseq.transformer.compiling import compile_layer
from posnet_fairseq.transformer.placement import position_kind, position_readers


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


class Layer(nn.Module):
    """Self-attention by the mixer of a side, cross-attention if there is a mixer for it, then feed-forward.

    Attributes:
        compiled_in_training: whether calls in training mode are compiled. In evaluation mode they are not: validation
            sets and searches would have graphs of their own.
    """

    compiled_in_training: bool = False

    # The order in which modules are made decides the weights that a seed gives.
    def __init__(self, cfg: Any, mixer: MixerSettings, cross: MixerSettings | None = None) -> None:
        super().__init__()
        self.self_attn = get_mixer(mixer.mixer)(mixer)
        self.self_attn_norm = nn.LayerNorm(mixer.embed_dim)
        # What --retain-dropout-modules calls layers without and with cross-attention.
        self.dropout = Dropout(cfg.dropout, module_name="EncoderLayer" if cross is None else "DecoderLayer")
        self.cross_attn: Any = None
        if cross is not None:
            self.cross_attn = get_mixer(cross.mixer)(cross)
            # A norm of queries that the mixer does not read would be trained in vain.
            self.cross_attn_norm = nn.LayerNorm(mixer.embed_dim) if self.cross_attn.reads_queries else nn.Identity()
        self.feed_forward = FeedForward(cfg, mixer.embed_dim, getattr(cfg, f"{side_of(mixer.place)}_ffn_embed_dim"))

    def train(self, mode: bool = True) -> Self:
        """Switch between training and evaluation mode."""
        super().train(mode)
        if self.compiled_in_training:
            if not mode:
                self._compiled_call_impl = None
            elif self._compiled_call_impl is None:
                compile_layer(self)
        return self

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        padding_mask: Tensor | None = None,
        positions: Tensor | None = None,
        memory_positions: Tensor | None = None,
        length_ratio: tuple[int, int] = (1, 1),
        states: Sequence[DecodingState] = (),
        rows: int = 0,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute one layer, for a full pass or a step.

        Args:
            x: (B, N, D); in a step N = 1.
            memory: the encoder's output, (B, M, D), for cross-attention; not read in a step, whose state has it.
            padding_mask: (B, M), of the memory; without cross-attention that of `x`.
            positions, memory_positions: vectors of positions, as the mixers get them. They are arguments of their own
                because activation checkpointing wants tensors that have gradients by themselves.
            length_ratio: γ as source tokens, target tokens.
            states, rows: in a step, those of self-attention and cross-attention, and as in :meth:`TokenMixer.step`.
            need_weights: also return the cross-attention weights, (B or 1, H, N, M), else None.
        """
        normed, weights = self.self_attn_norm(x), None
        if states:
            mixed = self.self_attn.step(normed, states[0], positions, rows)
        else:
            own_mask = padding_mask if self.cross_attn is None else None
            mixed = self.self_attn(normed, padding_mask=own_mask, positions=positions)
        x = self.dropout.add(x, mixed)
        if self.cross_attn is not None:
            query = self.cross_attn_norm(x)
            if states:
                mixed = self.cross_attn.step(query, states[1], positions, rows, need_weights)
            else:
                mixed = self.cross_attn(
                    query,
                    memory,
                    padding_mask=padding_mask,
                    positions=positions,
                    memory_positions=memory_positions,
                    length_ratio=length_ratio,
                    need_weights=need_weights,
                )
            mixed, weights = mixed if isinstance(mixed, tuple) else (mixed, None)
            x = self.dropout.add(x, mixed)
        return self.feed_forward(x), weights


class Stack(nn.Module):
    """Embeddings, the layers of a side, a final LayerNorm; a subclass calls the layers.

    `layers` are made when they are iterated over, after the positions: the order decides the weights that a seed gives.
    """

    side: str
    length_option: str  # that sets the longest sentence

    def __init__(self, cfg: Any, embed_tokens: nn.Embedding, padding_idx: int, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.padding_idx = padding_idx
        self.embed_tokens = embed_tokens
        self.positions = Positions(
            kind=position_kind(cfg, self.side),
            max_positions=cfg.max_source_positions if self.side == "encoder" else cfg.max_target_positions,
            embed_dim=getattr(cfg, f"{self.side}_embed_dim"),
            dropout=cfg.dropout,
            option=self.length_option,
            for_mixers=bool(position_readers(cfg, self.side)),
        )
        self.dropout = Dropout(cfg.dropout, module_name=self.__class__.__name__)
        self.layers: Any = nn.ModuleList(layers)
        self.final_norm = nn.LayerNorm(getattr(cfg, f"{self.side}_embed_dim"))

    def max_positions(self) -> int:
        """Return the longest sentence."""
        return self.positions.max_positions
