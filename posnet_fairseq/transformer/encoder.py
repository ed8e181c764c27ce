"""The encoder."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from posnet_fairseq.mixers.bases.decoding_state import DecodingState
from posnet_fairseq.mixers.bases.mixer_settings import MixerSettings
from posnet_fairseq.transformer.layers import Layer, Stack


@dataclass(frozen=True)
class EncoderOutput:
    """A batch of encoded sentences, S of them, and what decoding keeps of each."""

    states: Tensor  # (S, M, D), padding behind the tokens
    padding_mask: Tensor  # (S, M), True at padding
    has_padding: bool
    order: Tensor | None = None  # (S, M) the order that moved the tokens before the padding, or None if they were there
    positions: Tensor | None = None  # (M, D) vectors of positions as the mixers got them
    beam: int = 1  # hypotheses of each sentence, which share its row
    layers: tuple[Tensor, ...] = ()  # (S, M, D) the input of the first and the output of every layer, if asked for
    cross_states: list[DecodingState] = field(default_factory=list)  # of each cross-attention, in decoding

    def select(self, sentences: Tensor | None, beam: int) -> "EncoderOutput":
        """Return the output for the sentences with numbers (S',), None for all, with `beam` hypotheses each.

        Copies of the states of cross-attention move along.
        """
        cross_states = [state.shared_copy() for state in self.cross_states]
        for state in cross_states:
            state.select(sentences, beam)
        if sentences is None:
            return replace(self, beam=beam, cross_states=cross_states)
        return replace(
            self,
            cross_states=cross_states,
            states=self.states.index_select(0, sentences),
            padding_mask=self.padding_mask.index_select(0, sentences),
            order=None if self.order is None else self.order.index_select(0, sentences),
            beam=beam,
            layers=tuple(layer.index_select(0, sentences) for layer in self.layers),
        )

    def with_all_hypotheses(self) -> "EncoderOutput":
        """Return the output with a row for every hypothesis, as a full pass reads it."""
        if self.beam == 1:
            return self
        rows = torch.arange(self.states.size(0), device=self.states.device).repeat_interleave(self.beam)
        return replace(self, layers=(), cross_states=[]).select(rows, 1)


class Encoder(Stack):
    """The encoder of a translation model."""

    side = "encoder"
    length_option = "--max-source-positions"

    def __init__(self, cfg: Any, embed_tokens: nn.Embedding, padding_idx: int, mixers: Iterable[MixerSettings]) -> None:
        super().__init__(cfg, embed_tokens, padding_idx, (Layer(cfg, mixer) for mixer in mixers))

    def encode(self, src_tokens: Tensor, return_layers: bool = False) -> EncoderOutput:
        """Encode (S, M) token ids, padded on either side; `return_layers` keeps the input and output of every layer."""
        src_tokens, padding_mask, order = self.positions.in_front(src_tokens, src_tokens.eq(self.padding_idx))
        x = self.dropout(self.positions.add_to(self.embed_tokens(src_tokens)))
        # On a GPU the only look at the numbers of a batch. A compiled graph takes any batch as one with padding.
        has_padding = torch.compiler.is_compiling() or bool(padding_mask.any())
        positions = self.positions.for_mixers(src_tokens.size(1))
        layers = [x]
        for layer in self.layers:
            x, _ = layer(x, padding_mask=padding_mask if has_padding else None, positions=positions)
            layers.append(x)
        kept = tuple(layers) if return_layers else ()
        return EncoderOutput(self.final_norm(x), padding_mask, has_padding, order, positions, layers=kept)

    def forward(self, src_tokens: Tensor) -> EncoderOutput:
        """Encode a batch, as :meth:`encode`."""
        return self.encode(src_tokens)
