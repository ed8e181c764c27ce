"""The decoder of a translation model."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from posnet_fairseq.mixers.bases.mixer_settings import MixerSettings
from posnet_fairseq.ops.layout import inverse, reorder
from posnet_fairseq.ops.offsets import positions_read
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.causal import CausalDecoder, DecoderState, Features
from posnet_fairseq.transformer.encoder import EncoderOutput
from posnet_fairseq.transformer.layers import DecoderLayer
from posnet_fairseq.transformer.length_ratio_option import UNKNOWN


class Decoder(CausalDecoder):
    """A stack of layers with causal self-attention and cross-attention.

    `length_ratio` is γ as source tokens, target tokens, which becomes part of the checkpoint; None where the
    cross-attention does not read it. `mixers` are settings by place.
    """

    def __init__(
        self,
        cfg: Any,
        embed_tokens: nn.Embedding,
        padding_idx: int,
        length_ratio: tuple[int, int] | None,
        mixers: Mapping[str, Iterable[MixerSettings]],
    ) -> None:
        pairs = zip(mixers["decoder"], mixers["cross"], strict=True)
        super().__init__(cfg, embed_tokens, padding_idx, (DecoderLayer(cfg, *pair) for pair in pairs))
        # Whole numbers under this name are left alone by half precision, averaging and fairseq's moving average.
        self.length_ratio_version: Tensor | None
        self.register_buffer("length_ratio_version", None if length_ratio is None else torch.tensor(length_ratio))
        # What the buffer holds, as plain numbers: to read them there would make a GPU wait in every pass.
        self._length_ratio = (1, 1) if length_ratio is None else length_ratio

    def features(
        self,
        tokens: Tensor,
        encoded: EncoderOutput,
        state: DecoderState | None = None,
        need_attention: bool = False,
    ) -> Features:
        """Compute everything before the output projection, for a full pass or a step.

        Args:
            tokens: (B, N) token ids, padded on either side; in a step the last one of each hypothesis, (B, 1).
            encoded: what the encoder returned.
            state: of the step, advanced; None in a full pass.
            need_attention: also compute cross-attention weights.
        """
        ratio = self.length_ratio
        tokens, order, first, rows = self._begin(tokens, state)
        if state is None:
            encoded = encoded.with_all_hypotheses()
        elif not state.position:
            encoded.cross_states[:] = (  # not those of an earlier search
                layer.cross_attn.init_state(
                    tokens.size(0),
                    encoded.states,
                    padding_mask=encoded.padding_mask if encoded.has_padding else None,
                    memory_positions=encoded.positions,
                    length_ratio=ratio,
                )
                for layer in self.layers
            )
        elif [each.position for each in encoded.cross_states[:1]] != [state.position]:
            raise UsageError(
                f"a step at position {state.position}: this output of the encoder was not there at the step before, or "
                "another search has used it since. Encode the sentences for each of the searches that are at work."
            )
        # Cross-attention looks positions up at ⌊γn⌋.
        positions = self.positions.for_mixers(positions_read(rows, ratio))
        x = self.dropout(self.positions.add_to(self.embed_tokens(tokens), first))
        layers, weights, attention = [x], None, None
        for index, layer in enumerate(self.layers):
            x, weights = layer(
                x,
                encoded.states,
                encoded.padding_mask if encoded.has_padding else None,
                positions,
                encoded.positions,
                ratio,
                states=None if state is None else (state.layers[index], encoded.cross_states[index]),
                rows=rows,
                need_weights=need_attention and index == len(self.layers) - 1,
            )
            layers.append(x)
        if weights is not None:  # with rows and columns in the order of the target and source that were given
            attention = reorder(weights.mean(dim=1).expand(x.size(0), -1, -1), inverse(order))
            if encoded.order is not None:
                source_order = encoded.order.repeat_interleave(encoded.beam, dim=0)
                attention = reorder(attention.transpose(1, 2), inverse(source_order)).transpose(1, 2)
        return self._end(layers, attention, order, state)

    def forward(self, tokens: Tensor, encoded: EncoderOutput, state: DecoderState | None = None) -> Tensor:
        """Return scores of the next token, (B, N, vocabulary). Arguments as in :meth:`features`."""
        return self.output_layer(self.features(tokens, encoded, state).x)

    @property
    def length_ratio(self) -> tuple[int, int]:
        """γ as source tokens, target tokens; 1 to 1 where the cross-attention does not read it."""
        if self._length_ratio == UNKNOWN:
            raise UsageError(
                "the length ratio of source to target is unknown: it could not be measured in the data directory "
                "(posnet-length-ratio DIRECTORY says why). Give --length-ratio a number, or binarize the training set."
            )
        return self._length_ratio

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        stored = self.length_ratio_version
        if stored is not None and not stored.is_meta:
            source, target = stored.tolist()
            self._length_ratio = source, target
