"""The decoder of a language model."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from posnet_fairseq.mixers.bases.mixer_settings import MixerSettings
from posnet_fairseq.transformer.causal import CausalDecoder, DecoderState, Features
from posnet_fairseq.transformer.layers import EncoderLayer


class LanguageModel(CausalDecoder):
    """A stack of causal layers without cross-attention."""

    length_option = "--tokens-per-sample"

    def __init__(self, cfg: Any, embed_tokens: nn.Embedding, padding_idx: int, mixers: Iterable[MixerSettings]) -> None:
        super().__init__(cfg, embed_tokens, padding_idx, (EncoderLayer(cfg, mixer) for mixer in mixers))
        if cfg.add_bos_token:
            self.first_symbol = 0  # <s>

    def features(self, tokens: Tensor, state: DecoderState | None = None) -> Features:
        """Compute everything before the output projection, for a full pass or with a state, which is advanced, a step.

        `tokens` are (B, N) ids, padded on either side; in a step the last one of each text, (B, 1).
        """
        tokens, order, first, rows = self._begin(tokens, state)
        positions = self.positions.for_mixers(rows)
        x = self.dropout(self.positions.add_to(self.embed_tokens(tokens), first))
        layers = [x]
        for index, layer in enumerate(self.layers):
            x = layer(x, positions=positions, state=None if state is None else state.layers[index], rows=rows)
            layers.append(x)
        return self._end(layers, None, order, state)

    def forward(self, tokens: Tensor, state: DecoderState | None = None) -> Tensor:
        """Return scores of the next token, (B, N, vocabulary). Arguments as in :meth:`features`."""
        return self.output_layer(self.features(tokens, state).x)
