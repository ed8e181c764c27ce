"""Plain text for the BLEU of validations: ``--eval-bleu --eval-bleu-detok posnet``."""

from typing import Any

from fairseq.data.encoders import register_tokenizer
from sacrebleu.metrics import BLEU

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.languages import common_bleu_tokenizer
from posnet_fairseq.text.pipeline import pipeline_of


@register_tokenizer("posnet")
class PlainText:
    """Joins tokens to plain text as the card of the data says, and splits it as sacreBLEU does for the language.

    With ``--eval-tokenized-bleu`` this is the BLEU of posnet-score. ``--eval-bleu-detok-args`` are ``data``,
    ``source_lang`` and ``target_lang``.
    """

    def __init__(self, cfg: Any) -> None:
        self._pipeline = pipeline_of(cfg.data, (cfg.source_lang, cfg.target_lang))
        if (tokenizer := common_bleu_tokenizer(cfg.target_lang)) is None:
            raise UsageError(
                f"BLEU splits text into {cfg.target_lang} by a different tokenizer for each language, and validations "
                "have one for all. Go by perplexity, without --stop-on bleu."
            )
        self._split = BLEU(tokenize=tokenizer).tokenizer

    def encode(self, text: str) -> str:
        """Return text as it is: fairseq joins only."""
        return text

    def decode(self, tokens: str) -> str:
        """Return the words that BLEU counts, between spaces, of tokens between spaces."""
        return self._split(self._pipeline.decode(tokens))
