"""Splitting lines into words and joining words to lines: the code that prepares data also translates."""

import functools
import itertools
import re
import tempfile
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import regex

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import is_blank
from posnet_fairseq.text.dictionary import SPECIAL

TOKENIZERS = ("moses", "jieba", "characters", "none", "unchanged")
NORMAL_FORMS = ("", "spaces", "nfkc")

_CJK = r"[\p{Han}\p{Hiragana}\p{Katakana}\u3000-\u303F\uFF00-\uFFEF]"
_CHARACTER = regex.compile(f"({_CJK})")
_SPACE_AT_CHARACTER = regex.compile(f" (?={_CJK})|(?<={_CJK}) ")
_UNPRINTABLE = regex.compile(r"\p{C}")
# White space of any kind and control characters, such as tabs.
_SPACES = "".join(filter(regex.compile(r"[\s\p{Cc}]").match, map(chr, range(0x3001))))
# Soft hyphen, zero-width space, word joiner, byte order mark, and marks of the direction of writing. Joiners of letters
# and variation selectors are not among them: they tell words and emoji apart.
_INVISIBLE = "\u00ad\u200b\u2060\ufeff\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
WITHOUT_INVISIBLE = dict.fromkeys(map(ord, _INVISIBLE))
_BYTE = re.compile("<0x[0-9A-F]{2}>")  # pieces of sentencepiece's for bytes
# What Moses writes for "&", quotes, brackets and others, and for a hyphen that it splits at.
OF_MOSES = ("&amp;", "&#124;", "&lt;", "&gt;", "&apos;", "&quot;", "&#91;", "&#93;", "@-@")
_MARKS = ("▁", "▅", "@@")
_RUN_OF_SPACES = regex.compile(f"[{regex.escape(_SPACES)}]+")


def spaces_around(line: str) -> tuple[str, str, str]:
    """Return white space that a line begins with, its text, and white space that it ends with.

    Invisible characters around the text are dropped.
    """
    begun = line.lstrip(_SPACES + _INVISIBLE)
    text = begun.rstrip(_SPACES + _INVISIBLE)
    before, after = line[: len(line) - len(begun)], begun[len(text) :]
    return before.translate(WITHOUT_INVISIBLE), text, after.translate(WITHOUT_INVISIBLE)


class Tokenizer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Splits lines of a language into words, and joins words to a line.

    Args:
        language: tag, as in names of files; "" for text whose language is not named.
        tokenizer: ``moses`` (sacremoses, which escapes some characters), ``jieba`` (Chinese words), ``characters``
            (each Chinese or Japanese character is a word; the rest is split at spaces), or ``none``: words are split
            at spaces only; or ``unchanged``: the line is left as it is, for lossless models of sentencepiece.
        normalise: first, normalize punctuation as Moses does, and replace unprintable characters by spaces.
        split_hyphens: ``moses`` splits words at hyphens into ``@-@`` (Moses' option -a).
        straighten_apostrophes: first, replace ’ by '.
        lowercase: finally, convert to lower case.
        lowercase_first: instead, convert to lower case before all else, and normalize with the end of the line in
            view: lowercase.perl, normalize-punctuation.perl and tokenizer.perl of Moses in this order.
        rules: language whose rules ``moses`` and `normalise` use; "" for `language`.
        normal_form: before all else, ``spaces``: drop invisible characters and white space around the line, and replace
            each run of white space of any kind by a space; or ``nfkc``: Unicode's normal form NFKC, then the same; or
            "": leave the line as it is.
        symbols: that are never split or changed, such as ``<nl>``: text between them is split as a line of its own.

    Raises:
        UsageError: there is no such tokenizer or normal form, or a symbol cannot be one.
    """

    language: str = ""
    tokenizer: str = "moses"
    normalise: bool = False
    split_hyphens: bool = True
    straighten_apostrophes: bool = False
    lowercase: bool = False
    lowercase_first: bool = False
    rules: str = ""
    normal_form: str = ""
    symbols: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.tokenizer not in TOKENIZERS:
            raise UsageError(f"there is no tokenizer {self.tokenizer!r}. Choose one of: {', '.join(TOKENIZERS)}.")
        if self.normal_form not in NORMAL_FORMS:
            raise UsageError(f"there is no normal form {self.normal_form!r}. Choose one of: spaces, nfkc.")
        refuse_bad_symbols(self.symbols)

    @property
    def is_lowercase(self) -> bool:
        """Return whether words are in lower case."""
        return self.lowercase or self.lowercase_first

    @property
    def _rules(self) -> str:
        return self.rules or self.language

    def normalized(self, line: str) -> str:
        """Return a line in the normal form."""
        if not self.normal_form:
            return line
        if self.normal_form == "nfkc":
            line = self.between_symbols(lambda text: unicodedata.normalize("NFKC", text), line)
        return _RUN_OF_SPACES.sub(" ", line.translate(WITHOUT_INVISIBLE)).strip(" ")

    def between_symbols(self, function: Callable[[str], str], line: str, glue: str = "") -> str:
        """Return a line in which a function changes the text in front of, between and behind symbols."""
        if not self.symbols:
            return function(line)
        parts = enumerate(_any_of(self.symbols).split(line))
        return glue.join(part if number % 2 else function(part) for number, part in parts)

    def split(self, line: str) -> str:
        """Return words of a line of plain text, between single spaces unless unchanged; "" for a blank line."""
        has_words = self.tokenizer not in ("none", "unchanged")
        line = self.between_symbols(self._words, self.normalized(line), " " * has_words)
        if self.tokenizer != "unchanged":
            line = " ".join(line.split())
        return "" if is_blank(line) else line

    def _words(self, line: str) -> str:
        if self.straighten_apostrophes:
            line = line.replace("’", "'")
        if self.lowercase_first:
            line = f"{line.lower()}\n"
        if self.normalise:
            line = _UNPRINTABLE.sub(" ", _sacremoses("MosesPunctNormalizer", self._rules).normalize(line))
        if self.tokenizer == "moses":
            moses = _sacremoses("MosesTokenizer", self._rules)
            line = moses.tokenize(line, aggressive_dash_splits=self.split_hyphens, return_str=True)
        elif self.tokenizer == "jieba":
            line = " ".join(_jieba().cut(line))
        elif self.tokenizer == "characters":
            line = _CHARACTER.sub(r" \1 ", line)
        return line.lower() if self.lowercase else line

    def join(self, words: str) -> str:
        """Return plain text of words between spaces."""
        if self.tokenizer == "moses":
            moses = _sacremoses("MosesDetokenizer", self._rules)
            runs = itertools.groupby(words.split(), self.symbols.__contains__)
            return " ".join(" ".join(run) if are_symbols else moses.detokenize([*run]) for are_symbols, run in runs)
        return words if self.tokenizer in ("none", "unchanged") else _SPACE_AT_CHARACTER.sub("", words)


def lost_symbols(source: str, translation: str, symbols: Iterable[str]) -> list[str]:
    """Return the symbols that a line has more often than its translation."""
    return [symbol for symbol in symbols if source.count(symbol) > translation.count(symbol)]


def refuse_bad_symbols(symbols: Sequence[str]) -> None:
    """Refuse symbols that cannot stay whole in text, or that subwords and dictionaries have for other things."""
    for symbol in symbols:
        if not symbol or set(symbol) & set(_SPACES + _INVISIBLE):
            problem = "is empty" if not symbol else "has white space or invisible characters"
        elif symbol in SPECIAL or _BYTE.fullmatch(symbol):
            problem = f"is reserved: sentencepiece and fairseq have {', '.join(SPECIAL)} and <0x00> to <0xFF>"
        elif any(mark in symbol for mark in _MARKS):
            problem = f"has a mark of subwords: {', '.join(_MARKS)}"
        elif symbols.count(symbol) > 1:
            problem = "is there twice"
        else:
            continue
        raise UsageError(f"the symbol {symbol!r} {problem}. Give symbols such as <nl>, each once.")


@functools.cache
def _any_of(symbols: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern that splits a line at symbols, of several at one place at the longest, as sentencepiece."""
    return re.compile(f"({'|'.join(map(re.escape, sorted(symbols, key=len, reverse=True)))})")


def has_moses_rules(code: str) -> bool:
    """Return whether Moses has rules for a language; it treats others as English."""
    from sacremoses.corpus import NonbreakingPrefixes

    return code in NonbreakingPrefixes().available_langs.values()


# sacremoses and jieba take most of a second to import: only text that needs them waits for them.


@functools.cache
def _sacremoses(kind: str, language: str) -> Any:
    import sacremoses

    return getattr(sacremoses, kind)(language)


@functools.cache
def _jieba() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports pkg_resources
        import jieba

    jieba.setLogLevel("ERROR")
    tokenizer = jieba.Tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.tmp_dir = folder  # else it would unpack what any user of the machine may have put into /tmp
        tokenizer.initialize()
    return tokenizer
