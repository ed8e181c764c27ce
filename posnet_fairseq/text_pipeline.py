"""Between plain text and the subword tokens a model was trained on: one class a way, fairseq's encoders inside."""

import json
from pathlib import Path

from fairseq.data.encoders.moses_tokenizer import MosesTokenizer, MosesTokenizerConfig
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE, SentencepieceConfig
from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE, SubwordNMTBPEConfig

from posnet_fairseq.errors import UsageError

CARD = "dataset.json"


class SentencePieces:
    """Pieces of a sentencepiece model, which turn back into exactly the text they came from.

    Args:
        model: a sentencepiece model for both languages.
    """

    def __init__(self, model):
        _check_file(model)
        self._pieces = SentencepieceBPE(SentencepieceConfig(sentencepiece_model=str(model)))

    def encode(self, line):
        """Plain text to tokens between spaces."""
        return self._pieces.encode(line)

    def decode(self, tokens):
        """Tokens of the target language to plain text."""
        return self._pieces.decode(tokens)


class MosesBPE:
    """Moses words (sacremoses) split by BPE (subword-nmt), as in the PosNet paper.

    Args:
        source_lang: two-letter code of the source language.
        target_lang: two-letter code of the target language.
        codes: file of BPE merges.
    """

    def __init__(self, source_lang, target_lang, codes):
        _check_file(codes)
        self._words = MosesTokenizer(MosesTokenizerConfig(source_lang=source_lang, target_lang=target_lang))
        self._pieces = SubwordNMTBPE(SubwordNMTBPEConfig(bpe_codes=str(codes)))

    def encode(self, line):
        """Plain text of the source language to tokens between spaces."""
        return self._pieces.encode(self._words.encode(line))

    def decode(self, tokens):
        """Tokens of the target language to plain text."""
        return self._words.decode(self._pieces.decode(tokens))


class Pretokenized:
    """Text that is tokens already and stays so."""

    def encode(self, line):
        """The line itself."""
        return line

    def decode(self, tokens):
        """The tokens themselves."""
        return tokens


def pipeline_of(folder):
    """What the card of a prepared dataset says about its text.

    Raises:
        UsageError: the folder has no card, or one that says nothing of the kind.
    """
    path = Path(folder) / CARD
    try:
        return SentencePieces(Path(folder) / json.loads(path.read_text(encoding="utf-8"))["sentencepiece_model"])
    except FileNotFoundError:
        raise UsageError(
            f"{folder} has no {CARD}, which says how its text was split into tokens. Give --sentencepiece-model FILE, "
            "--bpe-codes FILE (for Moses words with BPE), --pretokenized for text that is split already, or --data "
            "with a directory that posnet-prepare made."
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no card of a dataset ({error}). Make it anew with posnet-prepare.") from error


def _check_file(path):
    if not Path(path).is_file():
        raise UsageError(f"{path}: there is no such file. Check the path.")
