"""The decoder."""

from dataclasses import replace

import torch

from posnet_fairseq.mixers.bases.token_mixer import MixingContext
from posnet_fairseq.ops.layout import inverse, reorder
from posnet_fairseq.ops.offsets import scaled
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.causal import CausalDecoder
from posnet_fairseq.transformer.layers import DecoderLayer
from posnet_fairseq.transformer.length_ratio import UNKNOWN


class MixerDecoder(CausalDecoder):
    """The decoder of a translation model.

    Args:
        cfg: options of the model.
        dictionary: of the target.
        embed_tokens: embedding of the target's words.
        length_ratio: γ as source tokens, target tokens, which becomes part of the checkpoint; None where the
            cross-attention does not read it.
    """

    def __init__(self, cfg, dictionary, embed_tokens, length_ratio):
        shared_output = cfg.share_decoder_input_output_embed or cfg.share_all_embeddings
        super().__init__(cfg, dictionary, embed_tokens, DecoderLayer, shared_output)
        # Whole numbers under this name are left alone by half precision, averaging and fairseq's moving average.
        self.register_buffer("length_ratio_version", None if length_ratio is None else torch.tensor(length_ratio))
        self.need_attn = False

    def extract_features(self, prev_output_tokens, encoder_out, incremental_state=None):
        """As :meth:`CausalDecoder.forward` without the output projection."""
        tokens, order, first, ahead = self._new_tokens(prev_output_tokens, incremental_state)
        if incremental_state is None and encoder_out["hypotheses"][0] > 1:
            encoder_out = self._with_all_hypotheses(encoder_out)
        memory = encoder_out["encoder_out"][0].transpose(0, 1)
        self_context, cross_context = self._contexts(encoder_out, first, ahead)
        # Cross-attention looks positions up at ⌊γn⌋.
        positions = self.positions.for_mixers(max(ahead, scaled(ahead - 1, cross_context.length_ratio) + 1))
        memory_positions = encoder_out["positions"][0] if encoder_out["positions"] else None
        x = self.dropout(self.positions.add_to(self.embed_tokens(tokens), first))
        states, attn = [x], None
        for layer in self.layers:
            if self.need_attn and layer is self.layers[-1]:
                cross_context = replace(cross_context, need_weights=True)
            x, attn = layer(
                x,
                memory,
                self_context,
                cross_context,
                positions=positions,
                memory_positions=memory_positions,
                incremental_state=incremental_state,
            )
            states.append(x)
        x = reorder(self.final_norm(x), inverse(order))
        if attn is not None:
            attn = attn.mean(dim=1).expand(x.size(0), -1, -1)
            attn = self._as_fairseq_padded(attn, encoder_out, order)
        states = [reorder(state, inverse(order)).transpose(0, 1) for state in states]
        return x, {"attn": [attn], "inner_states": states}

    def make_generation_fast_(self, need_attn=False, **kwargs):
        """Called by fairseq before generation; `need_attn` with ``--print-alignment``."""
        self.need_attn = need_attn

    @property
    def length_ratio(self):
        """γ as source tokens, target tokens; 1 to 1 where the cross-attention does not read it.

        Raises:
            UsageError: it was never measured.
        """
        ratio = (1, 1) if self.length_ratio_version is None else tuple(self.length_ratio_version.tolist())
        if ratio == UNKNOWN:
            raise UsageError(
                "the length ratio of source to target is unknown: the data directory holds no training set to measure "
                "it on. Give --length-ratio a number, or binarise the training set there."
            )
        return ratio

    def _contexts(self, encoder_out, first, ahead):
        """Where the tokens of a call stand in self-attention, and in cross-attention."""
        padding_mask = encoder_out["encoder_padding_mask"][0]
        cross = MixingContext(
            padding_mask=padding_mask if padding_mask.any() else None,
            first=first,
            ahead=ahead,
            hypotheses=encoder_out["hypotheses"][0],
            length_ratio=self.length_ratio,
        )
        return MixingContext(first=first, ahead=ahead), cross

    @staticmethod
    def _as_fairseq_padded(attn, encoder_out, order):
        """(B, N, M) with the rows and columns where fairseq had padded the target and the source."""
        attn = reorder(attn, inverse(order))
        if encoder_out["src_order"]:
            source_order = encoder_out["src_order"][0].repeat_interleave(encoder_out["hypotheses"][0], dim=0)
            attn = reorder(attn.transpose(1, 2), inverse(source_order)).transpose(1, 2)
        return attn

    @staticmethod
    def _with_all_hypotheses(encoder_out):
        """What a full pass needs of the encoder's output, with a row for every hypothesis."""
        (hypotheses,) = encoder_out["hypotheses"]

        def repeated(name, dim):
            return [tensor.repeat_interleave(hypotheses, dim=dim) for tensor in encoder_out[name]]

        rows = {name: repeated(name, 0) for name in ("encoder_padding_mask", "src_order")}
        return encoder_out | rows | {"encoder_out": repeated("encoder_out", 1), "hypotheses": [1]}
