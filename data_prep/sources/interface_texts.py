"""Sentence pairs from marked-up interface texts and their translations."""

import html
import re
from collections.abc import Iterable, Iterator, Sequence

MAX_WORDS = 80
MAX_WORD_RATIO = 2.0
CHARACTER_RATIO = (0.45, 2.5)  # characters of the target per character of the source
MIN_LETTERS = 3
MIN_LETTER_SHARE = 0.5
MAX_SHARED_WORDS = 0.6

PLACEHOLDER = re.compile(r"%\(\w+\)[sdif]|%[sdif]|\{[\w.]*\}")

_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_MARKDOWN_LINK = re.compile(r"\[([^\[\]]+)\]\([^()\s]*\)")
_MARKUP = re.compile(r"\*\*|__|`")
_UNUSABLE = re.compile(r"https?://|www\.|\{\{|\{%|\}\}|^\s*\||\|\s*$|[<>]|\S+@\S+\.\w")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"„“(]?[A-ZÄÖÜ])|(?<=[。！？])\s*(?=.)")
_LETTER = re.compile(r"[^\W\d_]")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_WORD = re.compile(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+")
_LETTERS_PER_HAN = 3  # English letters that a Chinese character is worth
_HAN_PER_WORD = 1.6


class Cleaner:
    """Extracts sentence pairs from texts in English and their translations.

    Args:
        language: two-letter code of the translations.
    """

    def __init__(self, language: str) -> None:
        self._is_chinese = language == "zh"

    def sentence_pairs(self, source: str, target: str) -> Iterator[tuple[str, str]]:
        """Usable sentence pairs of a text and its translation, without markup.

        Both are split into paragraphs, and these into sentences, where both sides have equally many.
        """
        for paragraphs in _aligned(source.splitlines(), target.splitlines(), (source, target)):
            bare = (_strip_markup(paragraphs[0]), _strip_markup(paragraphs[1]))
            for sentences in _aligned(_SENTENCE_END.split(bare[0]), _SENTENCE_END.split(bare[1]), bare):
                pair = (" ".join(sentences[0].split()), " ".join(sentences[1].split()))
                if self.is_usable(*pair):
                    yield pair

    def words(self, pair: tuple[str, str]) -> tuple[int, float]:
        """Number of words of both sides; in the target, 1.6 Chinese characters are a word."""
        source, target = pair
        han = len(_HAN.findall(target))
        return len(source.split()), len(_HAN.sub(" ", target).split()) + han / _HAN_PER_WORD

    def is_usable(self, source: str, target: str) -> bool:
        """Whether a target may be the translation of a source, by lengths, letters and shared words, without markup."""
        if source.lower() == target.lower() or _UNUSABLE.search(source) or _UNUSABLE.search(target):
            return False
        if self._is_chinese != bool(_HAN.search(target)):  # not translated, or into another language
            return False
        bare = [PLACEHOLDER.sub("", side).strip() for side in (source, target)]
        letters = [_size(_LETTER.findall(side)) for side in bare]
        if min(letters) < MIN_LETTERS:
            return False
        if any(count < MIN_LETTER_SHARE * _size(side) for count, side in zip(letters, bare, strict=True)):
            return False
        words = self.words((source, target))
        if max(words) > MAX_WORDS or max(words) > MAX_WORD_RATIO * min(words) + 1:
            return False
        low, high = CHARACTER_RATIO
        return low <= _size(target) / len(source) <= high and _shared_words(*bare) <= MAX_SHARED_WORDS


def _size(text: Iterable[str]) -> int:
    """Number of characters, in which a Chinese one counts as the English letters that it is worth."""
    return sum(_LETTERS_PER_HAN if _HAN.match(letter) else 1 for letter in text)


def _aligned(sources: Sequence[str], targets: Sequence[str], whole: tuple[str, str]) -> Iterable[tuple[str, str]]:
    """Pairs of the parts of a text and its translation, blank ones left out; `whole` if their numbers differ."""
    sources = [part for part in sources if part.strip()]
    targets = [part for part in targets if part.strip()]
    return zip(sources, targets, strict=True) if len(sources) == len(targets) else [whole]


def _strip_markup(text: str) -> str:
    text = _MARKDOWN_LINK.sub(r"\1", html.unescape(text))
    return _MARKUP.sub("", _TAG.sub(" ", text))


def _shared_words(source: str, target: str) -> float:
    """Share of the target's words that are in the source, too; a high one means that the text was not translated."""
    ours, theirs = (set(_WORD.findall(side.lower())) for side in (target, source))
    return len(ours & theirs) / len(ours) if ours else 1.0
