"""Between plain text and the subword tokens a model was trained on: the same code prepares data and translates."""

import functools
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import regex
from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
from sentencepiece import SentencePieceProcessor
from subword_nmt.apply_bpe import BPE

from posnet_fairseq.errors import UsageError
from posnet_fairseq.files import is_blank

CARD = "dataset.json"
TOKENIZERS = ("moses", "jieba", "characters", "none")

_CJK = r"[\p{Han}\p{Hiragana}\p{Katakana}\u3000-\u303F\uFF00-\uFFEF]"
_CHARACTER = regex.compile(f"({_CJK})")
_SPACE_AT_CHARACTER = regex.compile(f" (?={_CJK})|(?<={_CJK}) ")
_UNPRINTABLE = regex.compile(r"\p{C}")
# Words whose pieces BPE remembers. Without a limit they would fill the memory on a large corpus.
_REMEMBERED = 200_000


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
    """

    def __init__(self, path):
        _check_file(path)
        with open(path, encoding="utf-8") as file:
            self._bpe = BPE(file)

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
    """

    def __init__(self, path):
        _check_file(path)
        self._model = SentencePieceProcessor(model_proto=Path(path).read_bytes())

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


def pipeline_of(folder):
    """What the card of a prepared dataset says about its text.

    Raises:
        UsageError: the folder has no card, or one that says nothing of the kind.
    """
    path = Path(folder) / CARD
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        sides = [{"language": "", "tokenizer": "none"}] * 2  # text of one language
        if "words" in card:
            sides = [{"language": name, **card["words"][name]} for name in (card["source_lang"], card["target_lang"])]
        kind, files = (
            (Merges, card["bpe_codes"]) if "bpe_codes" in card else (SentencePieces, card["sentencepiece_model"])
        )
        names = [files if isinstance(files, str) else files[side["language"]] for side in sides]
        return Pipeline(*(Words(**side) for side in sides), *(kind(Path(folder) / name) for name in names))
    except FileNotFoundError:
        raise UsageError(
            f"{folder} has no {CARD}, which says how its text was split into tokens. Give --sentencepiece-model FILE, "
            "--bpe-codes FILE (for Moses words with BPE), --pretokenized for text that is split already, or --data "
            "with a directory that posnet-prepare made."
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} is no card of a dataset ({error}). Make it anew with posnet-prepare.") from error


def _check_file(path):
    if not Path(path).is_file():
        raise UsageError(f"{path}: there is no such file. Check the path.")
