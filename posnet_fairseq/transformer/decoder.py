"""The decoder."""

from dataclasses import replace

import torch
from fairseq.models import FairseqIncrementalDecoder
from fairseq.modules import FairseqDropout, LayerNorm
from torch import nn

from posnet_fairseq.errors import UsageError
from posnet_fairseq.hypotheses import Reordering
from posnet_fairseq.length_ratio import UNKNOWN
from posnet_fairseq.mixers._base import MixingContext
from posnet_fairseq.model_config import position_kind, position_readers
from posnet_fairseq.ops.layout import front_order, inverse, reorder
from posnet_fairseq.ops.offsets import scaled
from posnet_fairseq.positions import Positions
from posnet_fairseq.transformer.layers import DecoderLayer, layer_stack


class MixerDecoder(FairseqIncrementalDecoder):
    """Embeddings, the layers, a final LayerNorm, the output projection.

    Args:
        cfg: options of the model.
        dictionary: of the target.
        embed_tokens: embedding of the target's words.
        length_ratio: γ as source tokens, target tokens, which becomes part of the checkpoint; None where the
            cross-attention does not read it.
    """

    def __init__(self, cfg, dictionary, embed_tokens, length_ratio):
        super().__init__(dictionary)
        self.padding_idx = dictionary.pad()
        self.embed_tokens = embed_tokens
        self.positions = Positions(
            kind=position_kind(cfg, "decoder"),
            max_positions=cfg.max_target_positions,
            embed_dim=cfg.decoder_embed_dim,
            dropout=cfg.dropout,
            option="--max-target-positions",
            for_mixers=bool(position_readers(cfg, "decoder")),
        )
        # Whole numbers under this name are left alone by half precision, averaging and fairseq's moving average.
        self.register_buffer("length_ratio_version", None if length_ratio is None else torch.tensor(length_ratio))
        self.dropout = FairseqDropout(cfg.dropout, module_name=self.__class__.__name__)
        self.layers = layer_stack(cfg, DecoderLayer, cfg.decoder_layers, cfg.decoder_layerdrop)
        self.final_norm = LayerNorm(cfg.decoder_embed_dim)
        self.output_projection = nn.Linear(cfg.decoder_embed_dim, len(dictionary), bias=False)
        if cfg.share_decoder_input_output_embed or cfg.share_all_embeddings:
            self.output_projection.weight = embed_tokens.weight
        else:
            nn.init.normal_(self.output_projection.weight, std=cfg.decoder_embed_dim**-0.5)
        self.need_attn = False

    def forward(
        self,
        prev_output_tokens,
        encoder_out=None,
        incremental_state=None,
        features_only=False,
        src_lengths=None,
        return_all_hiddens=False,
    ):
        """Predict the next token after every prefix, or step by step after the last one.

        Args:
            prev_output_tokens: (B, N) token ids. With `incremental_state` the whole prefix; only its last
                token is new.
            encoder_out: what :class:`MixerEncoder` returned.
            incremental_state: fairseq's state of beam search, or None for a full pass.
            features_only: leave the output projection out.
            src_lengths: not needed; part of fairseq's interface.
            return_all_hiddens: also return the output of every layer.

        Returns:
            (B, N, vocabulary), or (B, N, D) with `features_only`; and a dict with ``attn`` (a list of one
            (B, N, M), averaged over the last layer's heads, or None) and ``inner_states``.

        Raises:
            UsageError: a sentence is longer than ``--max-target-positions``.
        """
        x, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        if not return_all_hiddens:
            extra["inner_states"] = []
        return x if features_only else self.output_layer(x), extra

    def extract_features(self, prev_output_tokens, encoder_out, incremental_state=None):
        """As :meth:`forward` without the output projection."""
        order, first = None, 0
        if incremental_state is None:
            padding_mask = prev_output_tokens.eq(self.padding_idx)
            order = front_order(padding_mask)
            tokens = reorder(prev_output_tokens, order)
            if tokens.size(1) > self.positions.max_positions:
                self.positions.check_length(int((~padding_mask).sum(dim=1).max()))
            ahead = tokens.size(1)
        else:
            tokens, first = prev_output_tokens[:, -1:], prev_output_tokens.size(1) - 1
            self.positions.check_length(first + 1)
            ahead = self._rows_ahead(first)

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

    def output_layer(self, features):
        """(B, N, D) to (B, N, vocabulary)."""
        return self.output_projection(features)

    def max_positions(self):
        """The longest target."""
        return self.positions.max_positions

    def reorder_incremental_state_scripting(self, incremental_state, new_order):
        """Move the state of all mixers as beam search moves its hypotheses. Called by fairseq."""
        super().reorder_incremental_state_scripting(incremental_state, Reordering(new_order))

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

    def _rows_ahead(self, step):
        # Steps share tables over positions. Doubling their size keeps the cost of making them anew below one table.
        return min(self.positions.max_positions, max(16, 1 << (step + 1).bit_length()))

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
