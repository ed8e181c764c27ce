"""What the decoders of translation and language models share."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn

from posnet_fairseq.mixers.bases.decoding_state import DecodingState, table_rows
from posnet_fairseq.mixers.bases.lineage import Lineage
from posnet_fairseq.ops.layout import inverse, reorder
from posnet_fairseq.ops.linear import Linear
from posnet_fairseq.transformer.layers import Stack


class Features(NamedTuple):
    """What a decoder computes before its output projection."""

    x: Tensor  # (B, N, D)
    attention: Tensor | None  # (B, N, M) cross-attention weights of the last layer, averaged over its heads
    in_front: list[Tensor]  # (B, N, D) the input of the first layer and the output of every layer, padding behind
    back: Tensor | None  # (B, N) the order that moves the padding to where it was, or None if it is there

    @property
    def layers(self) -> list[Tensor]:
        """Return (B, N, D) the input of the first layer and the output of every layer."""
        return [reorder(layer, self.back) for layer in self.in_front]


@dataclass(repr=False)
class DecoderState:
    """The state of a decoder in step-by-step decoding."""

    position: int = 0  # of the next token
    layers: list[DecodingState] = field(default_factory=list)  # of each self-attention; made at the first step
    lineage: Lineage = field(default_factory=Lineage)  # of the hypotheses, in all layers

    def __repr__(self) -> str:
        """Return position and sizes, without the numbers."""
        first = f", each {self.layers[0]}" if self.layers else ""
        return f"DecoderState(position {self.position}, {len(self.layers)} layers{first})"

    def reorder(self, order: Tensor, sentences: Tensor | None = None, beam: int = 0) -> None:
        """Continue with the hypotheses `order`, (R,), as beam search picks and repeats them.

        If `beam` of each of the `sentences`, (S,), None for all, follow one another, they can share a memory.
        """
        for state in self.layers:
            state.reorder(order)
        self.lineage.reorder(order, sentences, beam)


class CausalDecoder(Stack):
    """A stack of layers with an output projection."""

    side = "decoder"
    length_option = "--max-target-positions"
    # What every sentence is predicted from: the end symbol's id in fairseq's dictionaries.
    first_symbol = 2

    def __init__(self, cfg: Any, embed_tokens: nn.Embedding, padding_idx: int, layers: Iterable[nn.Module]) -> None:
        super().__init__(cfg, embed_tokens, padding_idx, layers)
        self.output_projection: Any = Linear(cfg.decoder_embed_dim, embed_tokens.num_embeddings, bias=False)
        if cfg.share_decoder_input_output_embed or getattr(cfg, "share_all_embeddings", False):
            self.output_projection.weight = embed_tokens.weight
        else:
            nn.init.normal_(self.output_projection.weight, std=cfg.decoder_embed_dim**-0.5)

    def output_layer(self, features: Tensor) -> Tensor:
        """Map (B, N, D) to (B, N, vocabulary)."""
        return self.output_projection(features)

    def projection_to(self, words: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a function as :meth:`output_layer` to the scores of words with ids (W,): (B, N, D) to (B, N, W)."""
        if hasattr(self.output_projection, "part"):  # packed for inference
            return self.output_projection.part(words)
        return functools.partial(nn.functional.linear, weight=self.output_projection.weight[words])

    def read_before(self, tokens: Tensor) -> Tensor:
        """Return what the decoder reads to predict tokens (B, N): the first symbol, and all of them but the last."""
        return nn.functional.pad(tokens[:, :-1], (1, 0), value=self.first_symbol)

    def _begin(self, tokens: Tensor, state: DecoderState | None) -> tuple[Tensor, Tensor | None, int, int]:
        """Return tokens before padding, their order, the first one's position, and how many queries tables are for."""
        if state is None:
            tokens, _, order = self.positions.in_front(tokens, tokens.eq(self.padding_idx))
            return tokens, order, 0, tokens.size(1)
        self.positions.check_length(state.position + 1)
        if not state.layers:
            state.layers = [layer.self_attn.init_state(tokens.size(0)) for layer in self.layers]
            for each in state.layers:
                each.lineage, each.owns_lineage = state.lineage, False
        return tokens, None, state.position, table_rows(state.position, self.positions.max_positions)

    def _end(
        self, layers: list[Tensor], attention: Tensor | None, order: Tensor | None, state: DecoderState | None
    ) -> Features:
        if state is not None:
            state.position += 1
        back = inverse(order)
        return Features(reorder(self.final_norm(layers[-1]), back), attention, layers, back)
