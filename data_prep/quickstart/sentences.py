"""From marked-up interface texts to sentence pairs worth learning from."""

import html
import re

MAX_WORDS = 80
MAX_WORD_RATIO = 2.0
CHARACTER_RATIO = (0.45, 2.5)
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
# A Chinese character says as much as so many letters of English, and so many of them as a word.
_LETTERS_A_CHARACTER = 3
_CHARACTERS_A_WORD = 1.6


class Cleaner:
    """Makes sentence pairs of texts in English and another language.

    Args:
        language: of the translation, a two-letter code.
    """

    def __init__(self, language):
        self._is_chinese = language == "zh"

    def sentence_pairs(self, source, target):
        """Cleaned sentence pairs of a text and its translation.

        Both are taken apart into paragraphs, then sentences, only where both have equally many.
        """
        for paragraph in _aligned(source.splitlines(), target.splitlines(), source, target):
            paragraph = [_strip_markup(side) for side in paragraph]
            for pair in _aligned(*(_SENTENCE_END.split(side) for side in paragraph), *paragraph):
                pair = tuple(" ".join(side.split()) for side in pair)
                if self._is_usable(*pair):
                    yield pair

    def words(self, pair):
        """The number of words of both sides."""
        source, target = pair
        han = len(_HAN.findall(target))
        return len(source.split()), len(_HAN.sub(" ", target).split()) + han / _CHARACTERS_A_WORD if han else len(
            target.split()
        )

    def _is_usable(self, source, target):
        sides = (source, target)
        bare = [PLACEHOLDER.sub("", side).strip() for side in sides]
        if source.lower() == target.lower() or any(_UNUSABLE.search(side) for side in sides):
            return False
        if self._is_chinese != bool(_HAN.search(target)):  # it was not translated, or into something else
            return False
        letters = [_size(_LETTER.findall(side)) for side in bare]
        if min(letters) < MIN_LETTERS:
            return False
        if any(count < MIN_LETTER_SHARE * _size(side) for count, side in zip(letters, bare, strict=True)):
            return False
        words = self.words(sides)
        if max(words) > MAX_WORDS or max(words) > MAX_WORD_RATIO * min(words) + 1:
            return False
        low, high = CHARACTER_RATIO
        if not low <= _size(target) / len(source) <= high:
            return False
        return _shared_words(*bare) <= MAX_SHARED_WORDS


def _size(text):
    """Letters of a text, or of a list of them, as many as an English one would have."""
    return len(text) + (_LETTERS_A_CHARACTER - 1) * sum(1 for letter in text if _HAN.match(letter))


def _aligned(sources, targets, source, target):
    sources = [part for part in sources if part.strip()]
    targets = [part for part in targets if part.strip()]
    return zip(sources, targets, strict=True) if len(sources) == len(targets) else [(source, target)]


def _strip_markup(text):
    text = _MARKDOWN_LINK.sub(r"\1", html.unescape(text))
    return _MARKUP.sub("", _TAG.sub(" ", text))


def _shared_words(source, target):
    """The share of the target's words that stand in the source too: a high one means it was not translated."""
    ours, theirs = (set(_WORD.findall(side.lower())) for side in (target, source))
    return len(ours & theirs) / len(ours) if ours else 1.0
