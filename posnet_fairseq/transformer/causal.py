"""What the decoders of translation and language models share."""

from fairseq.models import FairseqIncrementalDecoder
from fairseq.modules import FairseqDropout, LayerNorm
from torch import nn

from posnet_fairseq.mixers.bases.hypotheses import Reordering
from posnet_fairseq.ops.layout import front_order, reorder
from posnet_fairseq.transformer.layers import layer_stack
from posnet_fairseq.transformer.options import position_kind, position_readers
from posnet_fairseq.transformer.positions import Positions


class CausalDecoder(FairseqIncrementalDecoder):
    """Embeddings, layers, a final LayerNorm, the output projection; a subclass says how the layers are called.

    Args:
        cfg: options of the model.
        dictionary: of the predicted words.
        embed_tokens: their embedding.
        layer: class of the layers.
        shared_output: whether the output projection is the embedding too.
    """

    # The option that sets the longest sentence.
    length_option = "--max-target-positions"

    def __init__(self, cfg, dictionary, embed_tokens, layer, shared_output):
        super().__init__(dictionary)
        self.padding_idx = dictionary.pad()
        self.embed_tokens = embed_tokens
        self.positions = Positions(
            kind=position_kind(cfg, "decoder"),
            max_positions=cfg.max_target_positions,
            embed_dim=cfg.decoder_embed_dim,
            dropout=cfg.dropout,
            option=self.length_option,
            for_mixers=bool(position_readers(cfg, "decoder")),
        )
        self.dropout = FairseqDropout(cfg.dropout, module_name=self.__class__.__name__)
        self.layers = layer_stack(cfg, layer, cfg.decoder_layers, cfg.decoder_layerdrop)
        self.final_norm = LayerNorm(cfg.decoder_embed_dim)
        self.output_projection = nn.Linear(cfg.decoder_embed_dim, len(dictionary), bias=False)
        if shared_output:
            self.output_projection.weight = embed_tokens.weight
        else:
            nn.init.normal_(self.output_projection.weight, std=cfg.decoder_embed_dim**-0.5)

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
            encoder_out: what :class:`MixerEncoder` returned; None in a language model.
            incremental_state: fairseq's state of beam search, or None for a full pass.
            features_only: leave the output projection out.
            src_lengths: not needed; part of fairseq's interface.
            return_all_hiddens: also return the output of every layer.

        Returns:
            (B, N, vocabulary), or (B, N, D) with `features_only`; and a dict with ``attn`` (a list of one
            (B, N, M), averaged over the last layer's heads of cross-attention, or None) and ``inner_states``.

        Raises:
            UsageError: a sentence is longer than the model's positions.
        """
        x, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        if not return_all_hiddens:
            extra["inner_states"] = []
        return x if features_only else self.output_layer(x), extra

    def output_layer(self, features):
        """(B, N, D) to (B, N, vocabulary)."""
        return self.output_projection(features)

    def max_positions(self):
        """The longest sentence."""
        return self.positions.max_positions

    def reorder_incremental_state_scripting(self, incremental_state, new_order):
        """Move the state of all mixers as beam search moves its hypotheses. Called by fairseq."""
        super().reorder_incremental_state_scripting(incremental_state, Reordering(new_order))

    def _new_tokens(self, prev_output_tokens, incremental_state):
        """The tokens of a call.

        Returns:
            (B, N), padded on the right, or the last one of each prefix, (B, 1); how they were moved, or None; the
            position of the first one; and for how many queries tables are to be made that steps share.

        Raises:
            UsageError: a sentence is too long.
        """
        if incremental_state is not None:
            first = prev_output_tokens.size(1) - 1
            self.positions.check_length(first + 1)
            return prev_output_tokens[:, -1:], None, first, self._rows_ahead(first)
        padding_mask = prev_output_tokens.eq(self.padding_idx)
        order = front_order(padding_mask)
        tokens = reorder(prev_output_tokens, order)
        if tokens.size(1) > self.positions.max_positions:
            self.positions.check_length(int((~padding_mask).sum(dim=1).max()))
        return tokens, order, 0, tokens.size(1)

    def _rows_ahead(self, step):
        # Steps share tables over positions. Doubling their size keeps the cost of making them anew below one table.
        return min(self.positions.max_positions, max(16, 1 << (step + 1).bit_length()))
