"""The decoder of a language model."""

from posnet_fairseq.mixers.bases.token_mixer import MixingContext
from posnet_fairseq.ops.layout import inverse, reorder
from posnet_fairseq.transformer.causal import CausalDecoder
from posnet_fairseq.transformer.layers import LanguageModelLayer


class LanguageModelDecoder(CausalDecoder):
    """A stack of causal layers without cross-attention."""

    length_option = "--tokens-per-sample"

    def __init__(self, cfg, dictionary, embed_tokens):
        super().__init__(cfg, dictionary, embed_tokens, LanguageModelLayer, cfg.share_decoder_input_output_embed)

    def extract_features(self, prev_output_tokens, encoder_out=None, incremental_state=None):
        """As :meth:`CausalDecoder.forward` without the output projection."""
        tokens, order, first, ahead = self._new_tokens(prev_output_tokens, incremental_state)
        positions = self.positions.for_mixers(ahead)
        context = MixingContext(first=first, ahead=ahead)
        x = self.dropout(self.positions.add_to(self.embed_tokens(tokens), first))
        states = [x]
        for layer in self.layers:
            x = layer(x, context, positions=positions, incremental_state=incremental_state)
            states.append(x)
        x = reorder(self.final_norm(x), inverse(order))
        states = [reorder(state, inverse(order)).transpose(0, 1) for state in states]
        return x, {"attn": [None], "inner_states": states}
