"""Between plain text and the subword tokens a model was trained on: the same code prepares data and translates."""

import contextlib
import functools
import hashlib
import io
import json
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path

import regex
from google.protobuf.message import DecodeError
from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from subword_nmt.apply_bpe import BPE

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain_damaged_codes
from posnet_fairseq.shared.files import is_blank

CARD = "dataset.json"
TOKENIZERS = ("moses", "jieba", "characters", "none")

_CJK = r"[\p{Han}\p{Hiragana}\p{Katakana}\u3000-\u303F\uFF00-\uFFEF]"
_CHARACTER = regex.compile(f"({_CJK})")
_SPACE_AT_CHARACTER = regex.compile(f" (?={_CJK})|(?<={_CJK}) ")
_UNPRINTABLE = regex.compile(r"\p{C}")
# Words whose pieces BPE remembers. Without a limit they would fill the memory on a large corpus.
_REMEMBERED = 200_000
_ANOTHER_FILE = "Copy it again, or give the file that the training data was made with."


@dataclass(frozen=True)
class Words:
    """How lines of a language are split into words, and words joined to a line again.

    Args:
        language: two-letter code.
        tokenizer: ``moses`` (sacremoses, with its escaping), ``jieba`` (Chinese words) or ``characters`` (each Chinese
            or Japanese character is a word; the rest is split at spaces), or ``none``: as it is, for sentencepiece.
        normalise: first Moses' normalised punctuation, and a space for every unprintable character.
        split_hyphens: ``moses`` splits words at hyphens, ``@-@`` (its option -a).
        straighten_apostrophes: first ’ becomes '.
        lowercase: last.
    """

    language: str
    tokenizer: str = "moses"
    normalise: bool = False
    split_hyphens: bool = True
    straighten_apostrophes: bool = False
    lowercase: bool = False

    def __post_init__(self):
        for option in fields(self):
            if not isinstance(getattr(self, option.name), option.type):
                raise TypeError(f"{option.name} is {getattr(self, option.name)!r:.50}, no {option.type.__name__}")
        if self.tokenizer not in TOKENIZERS:
            raise UsageError(f"there is no tokenizer {self.tokenizer!r}. Choose one of: {', '.join(TOKENIZERS)}.")

    def split(self, line):
        """Plain text to words between single spaces; none of a blank line."""
        if self.straighten_apostrophes:
            line = line.replace("’", "'")
        if self.normalise:
            line = _UNPRINTABLE.sub(" ", _normaliser(self.language).normalize(line))
        if self.tokenizer == "moses":
            line = _moses(self.language).tokenize(line, aggressive_dash_splits=self.split_hyphens, return_str=True)
        elif self.tokenizer == "jieba":
            line = " ".join(_jieba().cut(line))
        elif self.tokenizer == "characters":
            line = _CHARACTER.sub(r" \1 ", line)
        line = " ".join(line.split())
        if is_blank(line):
            return ""
        return line.lower() if self.lowercase else line

    def join(self, words):
        """Words between spaces to plain text."""
        if self.tokenizer == "moses":
            return _moses_joiner(self.language).detokenize(words.split())
        return words if self.tokenizer == "none" else _SPACE_AT_CHARACTER.sub("", words)


@functools.cache
def _normaliser(language):
    return MosesPunctNormalizer(language)


@functools.cache
def _moses(language):
    return MosesTokenizer(language)


@functools.cache
def _moses_joiner(language):
    return MosesDetokenizer(language)


@functools.cache
def _jieba():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports pkg_resources
        import jieba

    jieba.setLogLevel("ERROR")
    tokenizer = jieba.Tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.tmp_dir = folder  # else it would unpack what any user of the machine may have put into /tmp
        tokenizer.initialize()
    return tokenizer


class Merges:
    """BPE merges of subword-nmt, in bounded memory.

    Args:
        path: file of merges.

    Raises:
        UsageError: it is missing, or no file of merges.
    """

    def __init__(self, path):
        _check_file(path)
        complaint = io.StringIO()  # subword-nmt prints it and ends the program
        try:
            with open(path, encoding="utf-8") as file, contextlib.redirect_stderr(complaint):
                self._bpe = BPE(file)
        except (SystemExit, ValueError, LookupError) as error:
            raise UsageError(
                explain_damaged_codes(complaint.getvalue().removeprefix("Error: ") or error, path)
            ) from error
        if not all(all(pair) for pair in self._bpe.bpe_codes):
            raise UsageError(explain_damaged_codes("it is empty or has empty pieces", path))

    def split(self, words):
        """Words between spaces to pieces between spaces, ``@@`` behind all but a word's last."""
        if len(self._bpe.cache) > _REMEMBERED:
            self._bpe.cache.clear()
        return self._bpe.process_line(words)

    def join(self, pieces):
        """Pieces to words."""
        return (pieces + " ").replace("@@ ", "").rstrip()


class SentencePieces:
    """A sentencepiece model.

    Args:
        path: of the model.

    Raises:
        UsageError: it is missing, or no whole model.
    """

    def __init__(self, path):
        _check_file(path)
        proto = Path(path).read_bytes()
        try:
            model = ModelProto.FromString(proto)
            # sentencepiece itself takes a file that was cut between two pieces for a smaller model.
            if not (model.HasField("trainer_spec") and model.HasField("normalizer_spec")):
                raise ValueError("it is cut short")
            self._model = SentencePieceProcessor(model_proto=proto)
        except (DecodeError, ValueError, RuntimeError) as error:
            raise UsageError(f"{path} is damaged or no sentencepiece model. {_ANOTHER_FILE}") from error

    def split(self, words):
        """Words between single spaces to pieces between spaces, which begin with ``▁`` where a word does."""
        return " ".join(self._model.encode(words, out_type=str))

    def join(self, pieces):
        """Pieces to words."""
        return pieces.replace(" ", "").replace("▁", " ").strip()


class Pipeline:
    """Plain text to tokens and back.

    Args:
        source, target: the :class:`Words` of both languages.
        source_pieces, target_pieces: their :class:`Merges` or :class:`SentencePieces`.
    """

    def __init__(self, source, target, source_pieces, target_pieces):
        self._source, self._target = source, target
        self._source_pieces, self._target_pieces = source_pieces, target_pieces

    def encode(self, line):
        """Plain text of the source language to tokens between spaces."""
        return self._source_pieces.split(self._source.split(line))

    def decode(self, tokens):
        """Tokens of the target language to plain text."""
        return self._target.join(self._target_pieces.join(tokens))


class Pretokenized:
    """Text that is tokens already and stays so."""

    def encode(self, line):
        """The line itself."""
        return line

    def decode(self, tokens):
        """The tokens themselves."""
        return tokens


def pipeline_of(folder: str | Path, languages: tuple[str, str]) -> Pipeline:
    """What the card of a prepared dataset says about its text.

    Args:
        folder: of the dataset.
        languages: of source and target, as the model was trained: in the card they may stand the other way round. A
            language model has languages without a name.

    Raises:
        UsageError: the folder has no card, or one that says nothing of the kind, or its files are not as they were.
    """
    path = Path(folder) / CARD
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        sides = [{"language": "", "tokenizer": "none"}] * 2  # text of one language
        if "words" in card:
            _refuse_other_languages(path, (card["source_lang"], card["target_lang"]), languages)
            sides = [{**card["words"][name], "language": name} for name in languages]
        kind, files = (
            (Merges, card["bpe_codes"]) if "bpe_codes" in card else (SentencePieces, card["sentencepiece_model"])
        )
        names = [files if isinstance(files, str) else files[side["language"]] for side in sides]
        words = [Words(**side) for side in sides]
        return Pipeline(*words, *(kind(_companion(path, name, card)) for name in names))
    except FileNotFoundError:
        raise UsageError(
            f"{folder} has no {CARD}, which says how its text was split into tokens. Give --sentencepiece-model FILE, "
            "--bpe-codes FILE (for Moses words with BPE), --pretokenized for text that is split already, or --data "
            "with a directory that posnet-prepare made."
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} is no card of a dataset ({error}). Make it anew with posnet-prepare.") from error


def _refuse_other_languages(card_path, known, languages):
    if not set(languages) <= set(known):
        model = f"translates from {languages[0]} to {languages[1]}" if all(languages) else "is of one language"
        raise UsageError(
            f"{card_path} says how {known[0]} and {known[1]} are split into tokens, and the model {model}. Give the "
            "directory that it was trained on by --data, or --bpe-codes, --sentencepiece-model or --pretokenized."
        )


def _companion(card_path, name, card):
    """The path of a file that a card names, which is in the same folder, as it was made."""
    path = card_path.parent / name
    if Path(name).name != name:
        raise ValueError(f"it names the file {name}, which is not in its folder")
    _check_file(path)
    made = card.get("files", {}).get(name)
    with open(path, "rb") as file:
        if made and hashlib.file_digest(file, "sha256").hexdigest() != made["sha256"]:
            raise UsageError(f"{path} is not the file that {card_path} was made with. {_ANOTHER_FILE}")
    return path


def _check_file(path):
    if Path(path).is_dir():
        raise UsageError(f"{path} is a directory. Give a file in it.")
    if not Path(path).is_file():
        raise UsageError(f"{path}: there is no such file. Check the path.")
