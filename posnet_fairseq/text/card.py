"""The card of a dataset: ``dataset.json``, which posnet-prepare writes beside the binarized data."""

import errno
import json
import os
from pathlib import Path
from typing import Any, Self

import msgspec

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import reading, write_lines
from posnet_fairseq.shared.schema import convert, read_json
from posnet_fairseq.text.tokenizers import Tokenizer

CARD = "dataset.json"

# Names of files in the dataset's folder: one for all languages, or one for each.
FileNames = str | dict[str, str]
_LARGEST = 2**24  # bytes; a real one has some thousands for each set and archive
_WHAT, _ADVICE = "card of a dataset", "Make it again with posnet-prepare."


class DatasetCard(msgspec.Struct, omit_defaults=True):
    """What a dataset is made of, and how its text was split into tokens. Every entry may be missing.

    Attributes:
        dataset: name of the dataset.
        archives: digest and license of each archive that it was made of, by name.
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
    words: dict[str, Tokenizer] = {}
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
    files: dict[str, dict[str, Any]] = {}
    unknown: dict[str, Any] = {}

    def __post_init__(self) -> None:
        for name in (*self.files, *_names(self.bpe_codes), *_names(self.sentencepiece_model)):
            if Path(name).name != name:
                raise ValueError(f"it names the file {name}, which is not in its folder")

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Return the card of the dataset in a folder.

        Raises:
            FileNotFoundError: the folder has no card.
            UsageError: the file cannot be read or is no card, or its entries have other types than they should.
        """
        path = Path(folder) / CARD
        with reading(path):
            there = path.exists()
        if not there:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        entries = read_json(path, dict[str, Any], _WHAT, _ADVICE, _LARGEST)
        known = {name: entries.pop(name) for name in cls.__struct_fields__ if name in entries}
        card: Self = convert(known | {"unknown": entries}, cls, path, _WHAT, _ADVICE)
        card.words = {name: msgspec.structs.replace(words, language=name) for name, words in card.words.items()}
        return card

    def is_lowercase(self, language: str) -> bool:
        """Return whether the text of a language is in lower case, and so are translations into it."""
        return language in self.words and self.words[language].is_lowercase

    def save(self, folder: str | Path) -> None:
        """Write the card into the dataset's folder, whole or not at all, without entries that are missing.

        Raises:
            UsageError: it cannot be written there.
        """
        entries = msgspec.to_builtins(self)
        for words in entries.get("words", {}).values():
            del words["language"]  # the name of the entry
        entries |= entries.pop("unknown", {})
        write_lines(Path(folder) / CARD, [json.dumps(entries, indent=2, ensure_ascii=False)])


def bad_card(path: str | Path, reason: object) -> UsageError:
    """Return the error of a card that cannot be used.

    Args:
        path: file of the card.
        reason: what is wrong with it.
    """
    return UsageError(f"{path} is no {_WHAT}: {reason}. {_ADVICE}")


def _names(files: FileNames | None) -> list[str]:
    """Return all names of files."""
    if files is None:
        return []
    return [files] if isinstance(files, str) else list(files.values())
