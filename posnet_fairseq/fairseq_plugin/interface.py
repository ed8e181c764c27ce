"""Encoder, decoders and loading behind fairseq's interfaces: the same modules, called as fairseq calls its own."""

import json
from collections.abc import Mapping
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.distributed import fsdp_wrap
from fairseq.models import BaseFairseqModel, FairseqEncoder, FairseqIncrementalDecoder
from fairseq.models.transformer import TransformerModelBase
from fairseq.modules import LayerDropModuleList
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor, nn

from posnet_fairseq.inference.weights import MIXERS, check_weights, describe_mixers, other_weights
from posnet_fairseq.mixers.bases.decoding_state import order_of_sentences
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.failures import explain
from posnet_fairseq.transformer.decoder import CausalDecoder, Decoder, DecoderState, LanguageModel
from posnet_fairseq.transformer.encoder import Encoder, EncoderOutput
from posnet_fairseq.transformer.layers import Stack

# The key of a decoder's state in fairseq's incremental state, and of the encoder's output in fairseq's dict.
KEY = "posnet"


def word_embedding(cfg: Any, dictionary: Dictionary, side: str) -> nn.Embedding:
    """Return the word embedding of a side, "encoder" or "decoder", begun from ``--*-embed-path`` if there is one."""
    width, path = getattr(cfg, f"{side}_embed_dim"), getattr(cfg, f"{side}_embed_path")
    try:
        return TransformerModelBase.build_embedding(cfg, dictionary, width, path)
    except (RuntimeError, ValueError, StopIteration) as error:
        if not path or explain(error):
            raise
        raise UsageError(
            f"{flag(f'{side}_embed_path')} {path}: give a text file with a header line, then on each line a word and "
            f"{width} numbers."
        ) from error


class _WithoutDictionary(nn.Module):
    """Stands before fairseq's class, whose dictionary is set later."""

    def __init__(self) -> None:
        super().__init__(dictionary=None)


class _OfFairseq(Stack):
    """Stands before a stack of posnet, which gets a dictionary in place of the padding symbol.

    Its layers are compiled, with fairseq's LayerDrop, checkpointing and sharding, as the options ask.
    """

    def __init__(self, cfg: Any, dictionary: Dictionary, embed_tokens: nn.Embedding, *others: Any) -> None:
        super().__init__(cfg, embed_tokens, dictionary.pad(), *others)
        self.dictionary = dictionary
        layerdrop = getattr(cfg, f"{self.side}_layerdrop")
        stack = LayerDropModuleList(p=layerdrop) if layerdrop > 0 else nn.ModuleList()
        for layer in self.layers:
            layer.compiled_in_training = cfg.compile
            if cfg.checkpoint_activations or cfg.offload_activations:
                layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
            stack.append(fsdp_wrap(layer))
        self.layers = stack


class MixerEncoder(_OfFairseq, Encoder, _WithoutDictionary, FairseqEncoder):
    """The encoder as one of fairseq's."""

    def forward(  # type: ignore[override]  # fairseq's arguments
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        features_only: bool = False,
    ) -> dict[str, list[Any]]:
        """Encode a batch of (B, M) token ids, padded on either side, to a dict of lists as fairseq's encoders do.

        The tokens of each sentence stand before its padding. One more entry holds the :class:`EncoderOutput`.
        fairseq also gives the lengths and `features_only`, an argument of the decoder, which are not needed.
        """
        return _as_dict(self.encode(src_tokens, return_layers=return_all_hiddens))

    def reorder_encoder_out(self, encoder_out: dict[str, list[Any]], new_order: Tensor) -> dict[str, list[Any]]:
        """Return the output for the sentences `new_order`, in that order: fairseq's beam search picks and repeats."""
        encoded = encoder_out[KEY][0]
        reordered = encoded.select(*order_of_sentences(new_order, encoded.states.size(0), encoded.beam))
        if reordered.states is encoded.states:  # the hypotheses of a sentence share its row, and none moved
            return encoder_out | {KEY: [reordered]}
        return _as_dict(reordered)


def _as_dict(encoded: EncoderOutput) -> dict[str, list[Any]]:
    return {
        "encoder_out": [encoded.states.transpose(0, 1)],  # M x B x D
        "encoder_padding_mask": [encoded.padding_mask],  # B x M
        "encoder_embedding": [],
        "encoder_states": [layer.transpose(0, 1) for layer in encoded.layers],
        "src_tokens": [],
        "src_lengths": [(~encoded.padding_mask).sum(dim=1, keepdim=True)],  # B x 1
        KEY: [encoded],
    }


class _CausalInterface(_OfFairseq, CausalDecoder, _WithoutDictionary, FairseqIncrementalDecoder):
    """fairseq's interface to a decoder with or without cross-attention."""

    need_attn = False

    def forward(  # type: ignore[override]  # fairseq's arguments
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Any]] | None = None,
        incremental_state: dict[str, Any] | None = None,
        features_only: bool = False,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
    ) -> tuple[Tensor, dict[str, list[Any]]]:
        """Predict the next token after every prefix, or step by step after the last one.

        With fairseq's `incremental_state` of a search, `prev_output_tokens` (B, N) are whole prefixes, of which only
        the last token is new. `encoder_out` is what :class:`MixerEncoder` returned, None in a language model.

        Returns:
            (B, N, vocabulary), or (B, N, D) with `features_only`; and a dict with ``attn`` (a list of one
            (B, N, M), averaged over the last layer's heads of cross-attention, or None) and ``inner_states``.
        """
        state = None
        if incremental_state is not None:
            state = incremental_state.setdefault(KEY, DecoderState())
            length = prev_output_tokens.size(1)
            if length - 1 != state.position:
                raise UsageError(
                    f"a step at position {length - 1}: its state has seen {state.position} tokens, so the next stands "
                    f"at position {state.position}. Give all tokens of a hypothesis one after another."
                )
            prev_output_tokens = prev_output_tokens[:, -1:]
        encoded = None if encoder_out is None else encoder_out[KEY][0]
        features = self.features(prev_output_tokens, encoded, state, self.need_attn)
        layers = [layer.transpose(0, 1) for layer in features.layers] if return_all_hiddens else []
        x = features.x if features_only else self.output_layer(features.x)
        return x, {"attn": [features.attention], "inner_states": layers}

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Any]] | None = None,
        incremental_state: dict[str, Any] | None = None,
    ) -> tuple[Tensor, dict[str, list[Any]]]:
        """:meth:`forward` without the output projection."""
        return self.forward(prev_output_tokens, encoder_out, incremental_state, True, return_all_hiddens=True)

    def reorder_incremental_state_scripting(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Move the state of all mixers as beam search moves its hypotheses; fairseq calls this."""
        if KEY in incremental_state:
            incremental_state[KEY].reorder(new_order)

    def make_generation_fast_(self, need_attn: bool = False, **kwargs: object) -> None:
        """Prepare generation; fairseq calls this, with `need_attn` for ``--print-alignment``."""
        self.need_attn = need_attn


class MixerDecoder(_CausalInterface, Decoder):
    """The decoder of a translation model as one of fairseq's."""


class MixerLanguageModelDecoder(_CausalInterface, LanguageModel):
    """A language model as one of fairseq's decoders."""

    def max_positions(self) -> int:
        """Return the longest sentence, without the symbol of ``--add-bos-token``, which fairseq does not count."""
        return super().max_positions() - (self.first_symbol == self.dictionary.bos())


class ExplainedLoading(BaseFairseqModel):
    """Mixin, placed before fairseq's model class, that explains why a checkpoint cannot be loaded."""

    def store_mixers(self) -> None:
        """Store the names and options of the mixers with the weights.

        fairseq gives :meth:`load_state_dict` the options of the present run, not those of the checkpoint, and weights
        of other options may have the same shapes.
        """
        self.register_buffer(MIXERS, torch.tensor(list(json.dumps(describe_mixers(self)).encode())))

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load weights as fairseq does, and refuse those of another model with a sentence."""
        state_dict = check_weights(self, state_dict) | {MIXERS: self.state_dict()[MIXERS]}
        try:
            return super().load_state_dict(state_dict, *args, **kwargs)
        except RuntimeError as error:
            raise other_weights(state_dict, self) from error
