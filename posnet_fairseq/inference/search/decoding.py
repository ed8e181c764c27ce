"""One model, decoding one batch step by step."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from posnet_fairseq.transformer.causal import DecoderState
from posnet_fairseq.transformer.encoder import EncoderOutput


class Decoding:
    """A model that decodes a batch step by step; the sources are encoded once.

    The hypotheses of a sentence follow one another. States of self-attention have a row for each of them; the
    encoder's output and the states of cross-attention have a row for each sentence, and move with the sentences only.

    Args:
        model: translation model, or language model without ``encoder``, in evaluation mode.
        sources: (S, M) token ids with end symbols, padded on the right; of a language model only S counts.
        need_attention: also return cross-attention weights.
        allowed: (W,) ids of the target words that can follow, whose places then take the place of ids; None for all.
    """

    def __init__(
        self, model: Any, sources: Tensor, need_attention: bool = False, allowed: Tensor | None = None
    ) -> None:
        self._decoder = getattr(model, "decoder", model)
        self._state = DecoderState()
        self._allowed = allowed
        self._project = self._decoder.output_layer if allowed is None else self._decoder.projection_to(allowed)
        self._sentences, self._need_attention = sources.size(0), need_attention
        self._encoded: EncoderOutput | None = None
        if hasattr(model, "encoder"):
            # Decoding does not read the words' embeddings.
            self._encoded = replace(model.encoder.encode(sources), embedding=None)

    def step(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return scores of each hypothesis' next token, (R, V), and its cross-attention weights, (R, M), or None."""
        if self._allowed is not None:
            tokens = self._allowed[tokens]
        if self._encoded is None:
            features = self._decoder.features(tokens[:, None], self._state)
        else:
            features = self._decoder.features(tokens[:, None], self._encoded, self._state, self._need_attention)
        attention = None if features.attention is None else features.attention.squeeze(1)
        return self._project(features.x).squeeze(1), attention

    def reorder(self, order: Tensor, sentences: Tensor | None = None) -> None:
        """Continue with the hypotheses `order`, (R',), as many for each sentence; `sentences` that stay, None: all."""
        self._state.reorder(order)
        if sentences is not None:
            self._sentences = sentences.size(0)
        if self._encoded is not None:
            self._encoded = self._encoded.select(sentences, order.size(0) // self._sentences)
