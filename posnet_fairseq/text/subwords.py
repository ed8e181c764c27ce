"""Subwords: BPE merges of subword-nmt and models of sentencepiece."""

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain_damaged_codes
from posnet_fairseq.shared.files import read_small

ANOTHER_FILE = "Copy it again, or give the file that the training data was made with."
# Words whose pieces BPE remembers. Without a limit they would fill the memory on a large corpus.
_REMEMBERED = 200_000


class Merges:
    """BPE merges of subword-nmt, in bounded memory."""

    def __init__(self, path: str | Path) -> None:
        from subword_nmt.apply_bpe import BPE

        content = io.BytesIO(read_small(path))
        complaint = io.StringIO()  # subword-nmt prints it and ends the program
        try:
            with contextlib.redirect_stderr(complaint):
                self._bpe = BPE(io.TextIOWrapper(content, encoding="utf-8"))
            if not all(all(pair) for pair in self._bpe.bpe_codes):
                raise ValueError("it is empty or has empty pieces")
        except (SystemExit, ValueError, LookupError) as error:
            problem = complaint.getvalue().removeprefix("Error: ") or error
            raise UsageError(explain_damaged_codes(problem, path)) from error

    def split(self, words: str) -> str:
        """Return pieces between spaces, of words between single spaces; ``@@`` ends all but the last of a word."""
        if len(self._bpe.cache) > _REMEMBERED:
            self._bpe.cache.clear()
        return self._bpe.process_line(words)

    def join(self, pieces: str) -> str:
        """Return words of pieces."""
        return (pieces + " ").replace("@@ ", "").rstrip()


class SentencePieces:
    """A sentencepiece model."""

    def __init__(self, path: str | Path) -> None:
        from google.protobuf.message import DecodeError
        from sentencepiece import SentencePieceProcessor
        from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]  # made at import

        proto = read_small(path)
        try:
            model = ModelProto.FromString(proto)
            # sentencepiece itself takes a file that was cut between two pieces for a smaller model.
            if not (model.HasField("trainer_spec") and model.HasField("normalizer_spec")):
                raise ValueError("it is cut short")
            self._model = SentencePieceProcessor(model_proto=proto)
        except (DecodeError, ValueError, RuntimeError) as error:
            raise UsageError(f"{path} is damaged or no sentencepiece model. {ANOTHER_FILE}") from error

    def split(self, words: str) -> str:
        """Return pieces between spaces, of words between single spaces; pieces that begin a word begin with ``▁``."""
        return " ".join(self._model.encode(words, out_type=str))

    def join(self, pieces: str) -> str:
        """Return words of pieces."""
        return pieces.replace(" ", "").replace("▁", " ").strip()


Subwords = Merges | SentencePieces


def words_of_pieces(pieces: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the words of pieces, without marks, and for each piece the number of its word, from 0.

    If any piece begins with ``▁``, all words do, as sentencepiece marks them; else ``@@`` ends all pieces of a word but
    its last.
    """
    words, numbers, ended = list[str](), list[int](), True
    has_begins = any(piece.startswith("▁") for piece in pieces)
    for piece in pieces:
        if not words or (piece.startswith("▁") if has_begins else ended):
            words.append("")
        words[-1] += piece.replace("▁", "") if has_begins else piece.removesuffix("@@")
        numbers.append(len(words) - 1)
        ended = not piece.endswith("@@")
    return words, numbers
