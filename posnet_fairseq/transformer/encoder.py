"""The encoder."""

from fairseq.models import FairseqEncoder
from fairseq.modules import FairseqDropout, LayerNorm

from posnet_fairseq.mixers.bases.hypotheses import Reordering
from posnet_fairseq.ops.layout import front_order, reorder
from posnet_fairseq.transformer.layers import EncoderLayer, layer_stack
from posnet_fairseq.transformer.options import position_kind, position_readers
from posnet_fairseq.transformer.positions import Positions


class MixerEncoder(FairseqEncoder):
    """Embeddings, the layers, a final LayerNorm.

    Sentences are put in front of their padding first, so ``encoder_out`` and its padding mask are padded on
    the right wherever fairseq padded the source; ``src_order`` is how they were moved. ``positions`` are the vectors
    of positions that mixers got.
    """

    def __init__(self, cfg, dictionary, embed_tokens):
        super().__init__(dictionary)
        self.padding_idx = dictionary.pad()
        self.embed_tokens = embed_tokens
        self.positions = Positions(
            kind=position_kind(cfg, "encoder"),
            max_positions=cfg.max_source_positions,
            embed_dim=cfg.encoder_embed_dim,
            dropout=cfg.dropout,
            option="--max-source-positions",
            for_mixers=bool(position_readers(cfg, "encoder")),
        )
        self.dropout = FairseqDropout(cfg.dropout, module_name=self.__class__.__name__)
        self.layers = layer_stack(cfg, EncoderLayer, cfg.encoder_layers, cfg.encoder_layerdrop)
        self.final_norm = LayerNorm(cfg.encoder_embed_dim)

    def forward(self, src_tokens, src_lengths=None, return_all_hiddens=False):
        """Encode a batch.

        Args:
            src_tokens: (B, M) token ids, padded on either side.
            src_lengths: not needed; part of fairseq's interface.
            return_all_hiddens: also return the input of the first layer and the output of every layer.

        Returns:
            dict of lists, as fairseq's encoders return it, plus ``src_order``, ``positions`` and ``hypotheses``.

        Raises:
            UsageError: a sentence is longer than ``--max-source-positions``.
        """
        padding_mask = src_tokens.eq(self.padding_idx)
        order = front_order(padding_mask)
        src_tokens, padding_mask = reorder(src_tokens, order), reorder(padding_mask, order)
        if src_tokens.size(1) > self.positions.max_positions:
            self.positions.check_length(int((~padding_mask).sum(dim=1).max()))

        embedding = self.embed_tokens(src_tokens)
        x = self.dropout(self.positions.add_to(embedding))
        has_padding = bool(padding_mask.any())
        positions = self.positions.for_mixers(src_tokens.size(1))
        states = [x]
        for layer in self.layers:
            x = layer(x, padding_mask=padding_mask if has_padding else None, positions=positions)
            states.append(x)
        x = self.final_norm(x)
        return {
            "encoder_out": [x.transpose(0, 1)],  # M x B x D
            "encoder_padding_mask": [padding_mask],  # B x M
            "encoder_embedding": [embedding],  # B x M x D
            "encoder_states": [state.transpose(0, 1) for state in states] if return_all_hiddens else [],
            "src_tokens": [],
            "src_lengths": [(~padding_mask).sum(dim=1, keepdim=True)],  # B x 1
            "src_order": [] if order is None else [order],  # B x M
            "positions": [] if positions is None else [positions],  # M x D, those of every sentence
            "hypotheses": [1],  # of each sentence, which share its row of the above
        }

    def reorder_encoder_out(self, encoder_out, new_order):
        """The output for the sentences `new_order`, in that order: fairseq's beam search picks and repeats.

        Repetitions are kept once, and counted in ``hypotheses``, as long as those of a sentence stand together.
        """
        (hypotheses,) = encoder_out["hypotheses"]
        sentences = len(encoder_out["src_lengths"][0])
        order, hypotheses = Reordering(new_order).of_sentences(sentences, hypotheses)
        reordered = encoder_out | {"hypotheses": [hypotheses]}
        if order is not None:
            for name in reordered.keys() - {"positions", "hypotheses"}:
                dim = 1 if name in ("encoder_out", "encoder_states") else 0
                reordered[name] = [tensor.index_select(dim, order) for tensor in encoder_out[name]]
        return reordered

    def max_positions(self):
        """The longest source."""
        return self.positions.max_positions
