"""The decoder of a translation model, and a language model: a decoder without cross-attention."""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from posnet_fairseq.mixers.bases.decoding_state import DecodingState, table_rows
from posnet_fairseq.mixers.bases.lineage import Lineage
from posnet_fairseq.mixers.bases.mixer_settings import MixerSettings
from posnet_fairseq.ops.layout import inverse, reorder
from posnet_fairseq.ops.linear import Linear
from posnet_fairseq.ops.offsets import positions_read
from posnet_fairseq.shared.errors import UsageError, counted
from posnet_fairseq.transformer.encoder import EncoderOutput
from posnet_fairseq.transformer.layers import Layer, Stack
from posnet_fairseq.transformer.length_ratio_option import UNKNOWN


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
        return f"DecoderState(position {self.position}, {counted(len(self.layers), 'layer')}{first})"

    def reorder(self, order: Tensor, sentences: Tensor | None = None, beam: int = 0) -> None:
        """Continue with the hypotheses `order`, (R,), as beam search picks and repeats them.

        If `beam` of each of the `sentences`, (S,), None for all, follow one another, they can share a memory.
        """
        for state in self.layers:
            state.reorder(order)
        self.lineage.reorder(order, sentences, beam)


class CausalDecoder(Stack):
    """A stack of causal layers, with cross-attention or without, and an output projection."""

    side = "decoder"
    length_option = "--max-target-positions"
    # What every sentence is predicted from: the end symbol's id in fairseq's dictionaries.
    first_symbol = 2
    _length_ratio: tuple[int, int] = (1, 1)

    def __init__(self, cfg: Any, embed_tokens: nn.Embedding, padding_idx: int, layers: Iterable[nn.Module]) -> None:
        super().__init__(cfg, embed_tokens, padding_idx, layers)
        self.output_projection: Any = Linear(cfg.decoder_embed_dim, embed_tokens.num_embeddings, bias=False)
        if cfg.share_decoder_input_output_embed or getattr(cfg, "share_all_embeddings", False):
            self.output_projection.weight = embed_tokens.weight
        else:
            nn.init.normal_(self.output_projection.weight, std=cfg.decoder_embed_dim**-0.5)

    @property
    def length_ratio(self) -> tuple[int, int]:
        """γ as source tokens, target tokens; 1 to 1 where the cross-attention does not read it."""
        if self._length_ratio == UNKNOWN:
            raise UsageError(
                "the length ratio of source to target is unknown: only --task translation measures it, on the training "
                "set of the data directory. Give --length-ratio a number; posnet-length-ratio DIRECTORY prints it, or "
                "says why it cannot be measured."
            )
        return self._length_ratio

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

    def features(
        self,
        tokens: Tensor,
        encoded: EncoderOutput | None = None,
        state: DecoderState | None = None,
        need_attention: bool = False,
    ) -> Features:
        """Compute everything before the output projection, for a full pass or a step.

        Args:
            tokens: (B, N) token ids, padded on either side; in a step the last one of each hypothesis, (B, 1).
            encoded: what the encoder returned; None in a language model.
            state: of the step, advanced; None in a full pass.
            need_attention: also compute cross-attention weights.
        """
        ratio, order, first = self.length_ratio, None, 0
        states: list[Any] = [()] * len(self.layers)
        if state is None:
            tokens, _, order = self.positions.in_front(tokens, tokens.eq(self.padding_idx))
            rows = tokens.size(1)
            encoded = encoded and encoded.with_all_hypotheses()
        memory: dict[str, Any] = {}
        if encoded is not None:
            memory = {
                "memory": encoded.states,
                "padding_mask": encoded.padding_mask if encoded.has_padding else None,
                "memory_positions": encoded.positions,
                "length_ratio": ratio,
            }
        if state is not None:
            first, rows = state.position, table_rows(state.position, self.positions.max_positions)
            states = self._states(tokens.size(0), encoded, memory, state)
        # Cross-attention looks positions up at ⌊γn⌋.
        positions = self.positions.for_mixers(positions_read(rows, ratio))
        x = self.dropout(self.positions.add_to(self.embed_tokens(tokens), first))
        layers, weights, attention = [x], None, None
        for index, (layer, of_layer) in enumerate(zip(self.layers, states, strict=False)):  # LayerDrop leaves some out
            need = need_attention and index == len(self.layers) - 1
            x, weights = layer(x, positions=positions, states=of_layer, rows=rows, need_weights=need, **memory)
            layers.append(x)
        if weights is not None and encoded is not None:  # in the order of the target and source that were given
            attention = reorder(weights.mean(dim=1).expand(x.size(0), -1, -1), inverse(order))
            if encoded.order is not None:
                source_order = encoded.order.repeat_interleave(encoded.beam, dim=0)
                attention = reorder(attention.transpose(1, 2), inverse(source_order)).transpose(1, 2)
        if state is not None:
            state.position += 1
        back = inverse(order)
        return Features(reorder(self.final_norm(x), back), attention, layers, back)

    def forward(
        self, tokens: Tensor, encoded: EncoderOutput | None = None, state: DecoderState | None = None
    ) -> Tensor:
        """Return scores of the next token, (B, N, vocabulary). Arguments as in :meth:`features`."""
        return self.output_layer(self.features(tokens, encoded, state).x)

    def _states(
        self, hypotheses: int, encoded: EncoderOutput | None, memory: dict[str, Any], state: DecoderState
    ) -> list[Any]:
        """Return the states of the mixers of every layer, made at the first step."""
        self.positions.check_length(state.position + 1)
        if not state.layers:
            state.layers = [layer.self_attn.init_state(hypotheses) for layer in self.layers]
            for each in state.layers:
                each.lineage, each.owns_lineage = state.lineage, False
        if encoded is None:
            return [*zip(state.layers, strict=True)]
        if not state.position:
            # Not those of an earlier search.
            encoded.cross_states[:] = [layer.cross_attn.init_state(hypotheses, **memory) for layer in self.layers]
        elif [each.position for each in encoded.cross_states[:1]] != [state.position]:
            raise UsageError(
                f"a step at position {state.position}: this output of the encoder was not there at the step before, or "
                "another search has used it since. Encode the sentences for each of the searches that are at work."
            )
        return [*zip(state.layers, encoded.cross_states, strict=True)]


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
        super().__init__(cfg, embed_tokens, padding_idx, (Layer(cfg, *pair) for pair in pairs))
        # Whole numbers under this name are left alone by half precision, averaging and fairseq's moving average.
        self.length_ratio_version: Tensor | None
        self.register_buffer("length_ratio_version", None if length_ratio is None else torch.tensor(length_ratio))
        # What the buffer holds, as plain numbers: to read them there would make a GPU wait in every pass.
        self._length_ratio = (1, 1) if length_ratio is None else length_ratio

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        stored = self.length_ratio_version
        if stored is not None and not stored.is_meta:
            source, target = stored.tolist()
            self._length_ratio = source, target


class LanguageModel(CausalDecoder):
    """A stack of causal layers without cross-attention."""

    length_option = "--tokens-per-sample"

    def __init__(self, cfg: Any, embed_tokens: nn.Embedding, padding_idx: int, mixers: Iterable[MixerSettings]) -> None:
        super().__init__(cfg, embed_tokens, padding_idx, (Layer(cfg, mixer) for mixer in mixers))
        if cfg.add_bos_token:
            self.first_symbol = 0  # <s>
