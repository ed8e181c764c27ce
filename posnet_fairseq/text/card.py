"""The card of a dataset: ``dataset.json``, which posnet-prepare writes beside the binarised data."""

import dataclasses
import errno
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import read_small, reading, write_lines
from posnet_fairseq.text.tokenizers import Tokenizer

CARD = "dataset.json"

# Names of files in the dataset's folder: one for all languages, or one for each.
FileNames = str | dict[str, str]
_LARGEST = 2**24  # bytes; a real one has some thousands for each set and archive


@dataclass
class DatasetCard:
    """What a dataset is made of, and how its text was split into tokens. Every entry may be missing.

    Attributes:
        dataset: name of the dataset.
        archives: digest and licence of each archive that it was made of, by name.
        files_read: paths of the user's own files that it was made of, by set.
        source_lang, target_lang: languages; text of one language has none.
        words: tokenizer of each language.
        bpe_codes: merges of subword-nmt.
        sentencepiece_model: model of sentencepiece.
        sentences: lines of each set.
        test_sets: what each of several test sets consists of.
        dropped: pairs that cleaning left out of the training text, by reason.
        vocabulary: entries of each dictionary, by language; ``all`` for a joined one.
        length_ratio: γ, source tokens per target token.
        notes: sentences about the data.
        stages: counts, options, versions and seconds of each stage of the preparation.
        posnet: version that made the dataset.
        key: hash of all that the dataset was made of.
        files: size, time of change and SHA-256 of each file in the folder, by name.
        unknown: entries of the file that are none of these; they are written as they were read.
    """

    dataset: str | None = None
    archives: dict[str, Any] | None = None
    files_read: dict[str, list[str]] | None = None
    source_lang: str | None = None
    target_lang: str | None = None
    words: dict[str, Tokenizer] = field(default_factory=dict)
    bpe_codes: FileNames | None = None
    sentencepiece_model: FileNames | None = None
    sentences: dict[str, int] | None = None
    test_sets: dict[str, str] | None = None
    dropped: dict[str, int] | None = None
    vocabulary: dict[str, int] | None = None
    length_ratio: float | None = None
    notes: list[str] | None = None
    stages: dict[str, Any] | None = None
    posnet: str | None = None
    key: str | None = None
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    unknown: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """The card of the dataset in `folder`.

        Raises:
            FileNotFoundError: the folder has no card.
            UsageError: the file cannot be read or is no card, or its entries have other types than they should.
        """
        path = Path(folder) / CARD
        with reading(path):
            there = path.exists()
        if not there:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        try:
            return cls.from_entries(json.loads(read_small(path, _LARGEST)))
        except (ValueError, TypeError, RecursionError) as error:
            if isinstance(error, UsageError):
                raise
            raise bad_card(path, error) from error

    @classmethod
    def from_entries(cls, entries: dict[str, Any]) -> Self:
        """The card with the entries of a parsed ``dataset.json``.

        Raises:
            TypeError: an entry has another type than it should.
            ValueError: a file is named that is not in the dataset's folder.
            UsageError: there is no such tokenizer.
        """
        if not isinstance(entries, dict):
            raise TypeError(f"it is {entries!r:.50}, no dict")
        known: dict[str, Any] = {}
        for name, kinds in _KINDS.items():
            value = entries.get(name)
            if value is not None:
                known[name] = value
                if not isinstance(value, kinds):
                    raise TypeError(f"{name} is {value!r:.50}, no {kinds[0].__name__}")
        tokenizers = known.pop("words", {})
        card = cls(**known, unknown={name: entries[name] for name in entries if name not in _KINDS})
        for language, settings in tokenizers.items():
            card.words[language] = Tokenizer(**{**settings, "language": language})
        names = [*card.files, *_names(card.bpe_codes), *_names(card.sentencepiece_model)]
        for file in names:
            if not isinstance(file, str) or Path(file).name != file:
                raise ValueError(f"it names the file {file}, which is not in its folder")
        if not all(isinstance(description, dict) for description in card.files.values()):
            raise TypeError(f"files is {card.files!r:.50}, no dict of dicts")
        return card

    def is_lowercase(self, language: str) -> bool:
        """Whether the text of a language is in lower case, and so are translations into it: scores must ignore case."""
        return language in self.words and self.words[language].is_lowercase

    def to_entries(self) -> dict[str, Any]:
        """The entries of ``dataset.json``: a dict that json can write, without entries that are missing."""
        entries = {name: getattr(self, name) for name in _KINDS}
        entries["words"] = {language: _without_language(tokenizer) for language, tokenizer in self.words.items()}
        return {name: value for name, value in entries.items() if value not in (None, {})} | self.unknown

    def save(self, folder: str | Path) -> None:
        """Write the card into the dataset's folder, whole or not at all.

        Raises:
            UsageError: it cannot be written there.
        """
        write_lines(Path(folder) / CARD, [json.dumps(self.to_entries(), indent=2, ensure_ascii=False)])


def _kinds(hint: Any) -> tuple[type, ...]:
    """Types of a type hint that isinstance takes."""
    hints = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return tuple(get_origin(kind) or kind for kind in hints)


# The entries of the file that have fields, in the order in which they are written.
_KINDS = {name: _kinds(hint) for name, hint in get_type_hints(DatasetCard).items() if name != "unknown"}


def bad_card(path: str | Path, reason: object) -> UsageError:
    """The error of a card that cannot be used.

    Args:
        path: file of the card.
        reason: what is wrong with it.
    """
    return UsageError(f"{path} is no card of a dataset ({reason}). Make it again with posnet-prepare.")


def _names(files: FileNames | None) -> list[str]:
    """All names of files."""
    if files is None:
        return []
    return [files] if isinstance(files, str) else list(files.values())


def _without_language(tokenizer: Tokenizer) -> dict[str, Any]:
    """Settings of a tokenizer; its language is the name of the entry."""
    settings = dataclasses.asdict(tokenizer)
    del settings["language"]
    return settings
