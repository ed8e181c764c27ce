"""Subwords: BPE merges of subword-nmt and models of sentencepiece."""

import contextlib
import io
import random
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain_damaged_codes
from posnet_fairseq.shared.files import read_small
from posnet_fairseq.text.terms import is_letter

ANOTHER_FILE = "Copy it again, or give the file that the training data was made with."
# Words whose pieces BPE remembers. Without a limit they would fill the memory on a large corpus.
_REMEMBERED = 200_000


class Merges:
    """BPE merges of subword-nmt, in bounded memory. Words that are one of the `symbols` stay whole."""

    tokenizer = "moses"  # of text in front of them

    def __init__(self, path: str | Path, symbols: Iterable[str] = ()) -> None:
        from subword_nmt.apply_bpe import BPE

        content = io.BytesIO(read_small(path))
        complaint = io.StringIO()  # subword-nmt prints it and ends the program
        try:
            with contextlib.redirect_stderr(complaint):
                self._bpe = BPE(io.TextIOWrapper(content, encoding="utf-8"))
            if not all(all(pair) for pair in self._bpe.bpe_codes):
                raise ValueError("it is empty or has empty pieces")
            if symbols:  # not as glossaries: these split a word that is a symbol where it has another one in it
                self._bpe.glossaries_regex = re.compile(rf"(?:{'|'.join(map(re.escape, symbols))})\Z")
        except (SystemExit, ValueError, LookupError) as error:
            problem = complaint.getvalue().removeprefix("Error: ") or error
            raise UsageError(explain_damaged_codes(problem, path)) from error

    def split(self, words: str) -> str:
        """Return pieces between spaces, of words between single spaces; ``@@`` ends all but the last of a word."""
        if len(self._bpe.cache) > _REMEMBERED:
            self._bpe.cache = {}  # not cleared: other threads may be reading it
        return self._bpe.process_line(words)

    def sample(self, lines: Iterable[str], dropout: float, seed: int) -> list[str]:
        """Return pieces of lines as :meth:`split` does, each merge left out with a probability wherever it could be.

        That is BPE-dropout: Provilkov et al. (2020) Section 3. The same seed draws the same.
        """
        state, cache = random.getstate(), self._bpe.cache
        try:
            random.seed(seed)
            self._bpe.cache = {}  # subword-nmt keeps what was drawn, though it does not use it
            return [self._bpe.process_line(line, dropout) for line in lines]
        finally:
            self._bpe.cache = cache
            random.setstate(state)

    def join(self, pieces: str) -> str:
        """Return words of pieces."""
        return (pieces + " ").replace("@@ ", "").rstrip()

    def joins(self, piece: str) -> int:
        """Return how a piece is joined to others, see :meth:`TextPipeline.joins`."""
        text = piece.removesuffix("@@")
        return 2 * is_letter(text[:1]) + (text != piece and is_letter(text[-1:]))


class SentencePieces:
    """A sentencepiece model.

    Attributes:
        is_lossless: whether :meth:`join` restores any line that :meth:`split` was given: white space too is part of the
            text, nothing is normalized, and characters without a piece are split into bytes, ``<0x00>`` to ``<0xFF>``.
    """

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
        self.pieces = [piece.piece for piece in model.pieces]
        self._has_bytes, rules = model.trainer_spec.byte_fallback, model.normalizer_spec
        self.is_lossless = (
            self._has_bytes
            and rules.name == "identity"
            and rules.add_dummy_prefix
            and not rules.remove_extra_whitespaces
            and all(piece.split() == [piece] for piece in self.pieces)  # dictionaries separate symbols by white space
        )
        self.tokenizer = "unchanged" if self.is_lossless else "none"  # of text in front of the model

    def split(self, words: str) -> str:
        """Return pieces between spaces, of words between single spaces; pieces that begin a word begin with ``▁``.

        A lossless model takes any line.
        """
        return self._split(words)

    def _split(self, words: str, **sampling: Any) -> str:
        if self.is_lossless and SPACE in words:  # sentencepiece would take it for a space
            pieces = self._model.encode(words.replace(SPACE, "\n"), out_type=str, **sampling)  # which no line has
            return " ".join(_BYTES_OF_SPACE if piece == "<0x0A>" else piece for piece in pieces)
        return " ".join(self._model.encode(words, out_type=str, **sampling))

    def sample(self, lines: Iterable[str], dropout: float, seed: int) -> list[str]:
        """Return pieces of lines as :meth:`Merges.sample`; for a unigram model, `dropout` is α of Kudo (2018).

        `seed`: at most 32 bits.
        """
        from sentencepiece import set_random_generator_seed

        set_random_generator_seed(seed)
        with ThreadPoolExecutor(1) as thread:  # only generators of new threads begin with the seed
            sampling = {"enable_sampling": True, "nbest_size": -1, "alpha": dropout}
            return [*thread.map(lambda line: self._split(line, **sampling), lines)]

    def join(self, pieces: str) -> str:
        """Return words of pieces, or the line of a lossless model; bytes that are no character become U+FFFD."""
        if self._has_bytes:
            content = b"".join(map(_bytes_of, pieces.split(" "))).decode(errors="replace")
            text = _NO_TEXT.sub(" ", content)
        else:
            text = pieces.replace(" ", "").replace(SPACE, " ")
        return text.removeprefix(" ") if self.is_lossless else text.strip()

    def joins(self, piece: str) -> int:
        """Return how a piece is joined to others, see :meth:`TextPipeline.joins`; bytes may be of any letter."""
        return 3 if _BYTE.fullmatch(piece) else 2 * is_letter(piece[:1]) + is_letter(piece[-1:])


SPACE = "▁"  # stands for a space in pieces
_BYTES_OF_SPACE = " ".join(f"<0x{byte:02X}>" for byte in SPACE.encode())
_BYTE = re.compile("<0x([0-9A-F]{2})>")
_NO_TEXT = re.compile("[\0\n]")  # which models may write, and no line has


def _bytes_of(piece: str) -> bytes:
    byte = _BYTE.fullmatch(piece)
    return bytes.fromhex(byte[1]) if byte else piece.replace(SPACE, " ").encode()


Subwords = Merges | SentencePieces


def words_of_pieces(pieces: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the words of pieces, without marks, and for each piece the number of its word, from 0.

    If any piece begins with ``▁``, all words do, as sentencepiece marks them; else ``@@`` ends all pieces of a word but
    its last. Pieces for bytes of sentencepiece's are decoded.
    """
    words, numbers, ended = list[bytes](), list[int](), True
    has_begins = any(piece.startswith(SPACE) for piece in pieces)
    for piece in pieces:
        if not words or (piece.startswith(SPACE) if has_begins else ended):
            words.append(b"")
        words[-1] += _bytes_of(piece.replace(SPACE, "")) if has_begins else piece.removesuffix("@@").encode()
        numbers.append(len(words) - 1)
        ended = not piece.endswith("@@")
    return [word.decode(errors="replace") for word in words], numbers
