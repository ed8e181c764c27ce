"""Between plain text and the subword tokens a model was trained on."""

import json
from pathlib import Path

from fairseq.data.encoders.moses_tokenizer import MosesTokenizer, MosesTokenizerConfig
from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE, SubwordNMTBPEConfig

from posnet_fairseq.errors import UsageError

CARD = "dataset.json"


class TextPipeline:
    """Moses tokens (sacremoses) split by BPE (subword-nmt), the same for training data and for translation.

    Args:
        source_lang: two-letter code of the source language.
        target_lang: two-letter code of the target language.
        bpe_codes: file of BPE merges, or None to leave words whole.
    """

    def __init__(self, source_lang, target_lang, bpe_codes=None):
        self._source = MosesTokenizer(MosesTokenizerConfig(source_lang=source_lang, target_lang=target_lang))
        self._target = MosesTokenizer(MosesTokenizerConfig(source_lang=target_lang, target_lang=target_lang))
        self._bpe = SubwordNMTBPE(SubwordNMTBPEConfig(bpe_codes=str(bpe_codes))) if bpe_codes else None

    @classmethod
    def of_dataset(cls, folder):
        """The pipeline that the card of a prepared dataset describes.

        Raises:
            UsageError: the folder has no card, or one that says nothing of the kind.
        """
        path = Path(folder) / CARD
        try:
            card = json.loads(path.read_text(encoding="utf-8"))
            return cls(card["source_lang"], card["target_lang"], Path(folder) / card["bpe_codes"])
        except FileNotFoundError:
            raise UsageError(
                f"{folder} has no {CARD}, which says how its text was split into tokens. Give --bpe-codes FILE for "
                "Moses tokens with BPE, --pretokenized for text that is split already, or --data with a directory "
                "that posnet-prepare made."
            ) from None
        except (ValueError, KeyError) as error:
            raise UsageError(f"{path} is no card of a dataset ({error}). Make it anew with posnet-prepare.") from error

    def encode_source(self, line):
        """Plain text of the source language to tokens between spaces."""
        return self.split(self._source.encode(line))

    def encode_target(self, line):
        """Plain text of the target language to tokens between spaces."""
        return self.split(self._target.encode(line))

    def decode(self, tokens):
        """Tokens of the target language to plain text."""
        return self._target.decode(self._bpe.decode(tokens) if self._bpe else tokens)

    def split(self, words):
        """Words between spaces to subwords between spaces."""
        return self._bpe.encode(words) if self._bpe and words else words


class Pretokenized:
    """Text that is tokens already and stays so."""

    def encode_source(self, line):
        """The line itself."""
        return line

    def decode(self, tokens):
        """The tokens themselves."""
        return tokens
