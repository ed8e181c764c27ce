"""The card of a dataset: ``dataset.json``, which posnet-prepare writes beside the binarized data."""

import contextlib
import errno
import json
import os
from itertools import chain
from pathlib import Path
from typing import Any, Self

import msgspec

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import reading, write_lines
from posnet_fairseq.shared.schema import read_json
from posnet_fairseq.text.tokenizers import Tokenizer

CARD = "dataset.json"

# Names of files in the dataset's folder: one for all languages, or one for each.
FileNames = str | dict[str, str]
_LARGEST = 2**24  # bytes; a real one has some thousands for each set and archive
WHAT, ADVICE = "card of a dataset", "Make it again with posnet-prepare."


class Restored(msgspec.Struct):
    """How a text comes back from its tokens."""

    changed: int  # lines
    bleu: float | None = None  # of the text that comes back, the most that a system can score; None: of one language


class DatasetCard(msgspec.Struct, omit_defaults=True):
    """What a dataset is made of, and how its text was split into tokens. Every entry may be missing."""

    dataset: str | None = None
    archives: dict[str, Any] | None = None  # digest and `licence` of each archive, by name
    files_read: dict[str, list[str]] | None = None  # paths of the user's own files, by set
    source_lang: str | None = None  # none, as target_lang, of text of one language
    target_lang: str | None = None
    words: dict[str, Tokenizer] = {}
    bpe_codes: FileNames | None = None  # merges of subword-nmt
    sentencepiece_model: FileNames | None = None
    sentences: dict[str, int] | None = None  # lines of each set
    tags: dict[str, str] | None = None  # in front of sources, by the language that they are translated to
    test_sets: dict[str, str] | None = None  # what each of several test sets consists of; with tags, "en-de"
    # Of each set and language: lines that are not the same after encoding and decoding, and what they leave to BLEU.
    restored: dict[str, dict[str, Restored]] | None = None
    dropped: dict[str, int] | None = None  # training pairs that cleaning left out, by reason
    vocabulary: dict[str, int] | None = None  # entries of each dictionary by language, of text of one language by "all"
    symbols: dict[str, dict[str, int]] | None = None  # that stay whole, with occurrences in training, by language
    length_ratio: float | None = None  # γ, source tokens per target token
    usual_length: dict[str, int] | None = None  # tokens that 99.9% of the training lines have at most, by language
    notes: list[str] | None = None  # sentences about the data
    stages: dict[str, Any] | None = None  # counts, options, versions and seconds of each stage
    posnet: str | None = None  # version that made the dataset
    key: str | None = None  # hash of all that the dataset was made of
    files: dict[str, dict[str, Any]] = {}  # size, time of change and SHA-256 of each file in the folder

    @property
    def named_files(self) -> set[str]:
        """The files that the card names; one that is written by hand may have those of subwords only."""
        return {*self.files, *self.subword_files}

    @property
    def subword_files(self) -> set[str]:
        """The files of subwords that the card names."""
        subwords = (self.bpe_codes or {}, self.sentencepiece_model or {})
        return {*chain(*([of] if isinstance(of, str) else of.values() for of in subwords))}

    def __post_init__(self) -> None:
        for name in sorted(self.named_files):
            if Path(name).name != name:
                raise ValueError(f"it names the file {name}, which is not in its folder")

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Return the card of the dataset in a folder; a FileNotFoundError if there is none."""
        path = Path(folder) / CARD
        with reading(path):
            there = path.exists()
        if not there:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        card: Self = read_json(path, cls, WHAT, ADVICE, _LARGEST)
        card.words = {name: msgspec.structs.replace(words, language=name) for name, words in card.words.items()}
        return card

    @classmethod
    def read_if_whole(cls, folder: str | Path) -> Self:
        """Return the card of the dataset in a folder, an empty one if there is none or it is damaged."""
        with contextlib.suppress(OSError, UsageError):
            return cls.read(folder)
        return cls()

    def hash_of(self, name: str) -> str | None:
        """Return the SHA-256 of a file in the folder, None if the card does not have it."""
        return self.files.get(name, {}).get("sha256")

    def is_lowercase(self, language: str) -> bool:
        """Return whether the text of a language is in lower case, and so are translations into it."""
        return language in self.words and self.words[language].is_lowercase

    def save(self, folder: str | Path) -> None:
        """Write the card into the dataset's folder, whole or not at all, without entries that are missing."""
        entries = msgspec.to_builtins(self)
        for words in entries.get("words", {}).values():
            del words["language"]  # the name of the entry
            for name in ("rules", "normal_form", "symbols"):  # unknown to earlier versions
                if not words[name]:
                    del words[name]
        write_lines(Path(folder) / CARD, [json.dumps(entries, indent=2, ensure_ascii=False)])
