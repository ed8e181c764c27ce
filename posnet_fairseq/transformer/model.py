"""The translation model and the language model."""

from typing import Any

from torch import Tensor, nn

from posnet_fairseq.transformer.decoder import Decoder, LanguageModel
from posnet_fairseq.transformer.encoder import Encoder
from posnet_fairseq.transformer.length_ratio_option import UNKNOWN, parse
from posnet_fairseq.transformer.option_checks import checked_mixers
from posnet_fairseq.transformer.placement import reads_length_ratio

PADDING = 1  # the id of the padding symbol in fairseq's dictionaries


class Transformer(nn.Module):
    """Encoder and decoder."""

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, src_tokens: Tensor, prev_output_tokens: Tensor) -> Tensor:
        """Return scores of the next target token, (B, N, vocabulary), of (B, M) and (B, N) token ids."""
        return self.decoder(prev_output_tokens, self.encoder(src_tokens))


def build_transformer(cfg: Any, source_words: int, target_words: int) -> Transformer:
    """Return a model with random weights for dictionaries of these sizes; `cfg` is as :func:`apply_arch` left it."""
    mixers = checked_mixers(cfg)
    source = word_embedding(source_words, cfg.encoder_embed_dim)
    target = source if cfg.share_all_embeddings else word_embedding(target_words, cfg.decoder_embed_dim)
    ratio = (parse(cfg.length_ratio) or UNKNOWN) if reads_length_ratio(cfg) else None
    return Transformer(Encoder(cfg, source, PADDING, mixers["encoder"]), Decoder(cfg, target, PADDING, ratio, mixers))


def build_language_model(cfg: Any, words: int) -> LanguageModel:
    """Return a model with random weights for a dictionary of this size; `cfg` is as :func:`apply_gpt_arch` left it."""
    mixers = checked_mixers(cfg)
    return LanguageModel(cfg, word_embedding(words, cfg.decoder_embed_dim), PADDING, mixers["decoder"])


def word_embedding(words: int, embed_dim: int) -> nn.Embedding:
    """Return an embedding with normally distributed vectors of variance 1/D, zero for padding, as fairseq starts it."""
    embedding = nn.Embedding(words, embed_dim, padding_idx=PADDING)
    nn.init.normal_(embedding.weight, mean=0, std=embed_dim**-0.5)
    nn.init.zeros_(embedding.weight[PADDING])
    return embedding
