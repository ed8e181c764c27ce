"""One model, decoding one batch step by step."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from posnet_fairseq.transformer.causal import DecoderState
from posnet_fairseq.transformer.encoder import EncoderOutput


class Decoding:
    """A model on its way through a batch; the sources are encoded once.

    The hypotheses of a sentence follow one another. States of self-attention have a row for each of them; the
    encoder's output and the states of cross-attention have a row for each sentence, and move with the sentences only.

    Args:
        model: translation model with an ``encoder`` and a ``decoder``, or a language model, in evaluation mode.
        sources: (S, M) token ids with end symbols, padded on the right; of a language model only S counts.
        need_attention: also return cross-attention weights.
    """

    def __init__(self, model: Any, sources: Tensor, need_attention: bool = False) -> None:
        self._decoder = getattr(model, "decoder", model)
        self._state = DecoderState()
        self._sentences, self._need_attention = sources.size(0), need_attention
        self._encoded: EncoderOutput | None = None
        if hasattr(model, "encoder"):
            # Decoding does not read the words' embeddings.
            self._encoded = replace(model.encoder.encode(sources), embedding=None)

    def step(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Scores of each hypothesis' next token, (R, V), and its cross-attention weights, (R, M), or None.

        Args:
            tokens: (R,) the last token of each hypothesis.
        """
        if self._encoded is None:
            features = self._decoder.features(tokens[:, None], self._state)
        else:
            features = self._decoder.features(tokens[:, None], self._encoded, self._state, self._need_attention)
        attention = None if features.attention is None else features.attention.squeeze(1)
        return self._decoder.output_layer(features.x).squeeze(1), attention

    def reorder(self, order: Tensor, sentences: Tensor | None = None) -> None:
        """Continue with other hypotheses.

        Args:
            order: (R',) numbers of the hypotheses to continue with, the same number for each sentence.
            sentences: numbers of the sentences that stay; None if all do.
        """
        self._state.reorder(order)
        if sentences is not None:
            self._sentences = sentences.size(0)
        if self._encoded is not None:
            self._encoded = self._encoded.select(sentences, order.size(0) // self._sentences)
