"""The vocabulary of another dataset: its tokenizers, subwords and dictionaries, for text of the same languages."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.records import digest
from posnet_fairseq.text.card import DatasetCard
from posnet_fairseq.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Vocabulary:
    """How the text of a dataset became tokens and numbers.

    Attributes:
        folder: of the dataset.
        subwords: ``bpe`` or ``sentencepiece``.
        tokenizers: of source and target.
        subword_files: name of the file of subwords of each language.
        dictionary_files: names of the files of the dictionaries of source and target.
    """

    folder: Path
    subwords: str
    tokenizers: list[Tokenizer]
    subword_files: dict[str, str]
    dictionary_files: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path, languages: Sequence[str]) -> "Vocabulary":
        """Return the vocabulary of a dataset, for text of a source and a target language.

        Raises:
            UsageError: posnet-prepare has not made it, a file is missing, or it is of other languages.
        """
        try:
            card = DatasetCard.read(folder)
        except FileNotFoundError:
            card = DatasetCard()
        files = card.bpe_codes or card.sentencepiece_model
        known = set(languages) <= card.words.keys() and files and not isinstance(card.sentencepiece_model, dict)
        of_each = files if isinstance(files, dict) else dict.fromkeys(languages, files or "")
        made = cls(
            folder,
            "bpe" if card.bpe_codes else "sentencepiece",
            [card.words[language] for language in languages if language in card.words],
            {language: of_each.get(language, "") for language in languages},
            tuple(f"dict.{language}.txt" for language in languages),
        )
        missing = [
            path.name for path in (*made.paths(made.subword_files.values()), *made.dictionaries) if not path.is_file()
        ]
        if not known or missing or (card.source_lang, card.target_lang) != tuple(languages):
            of = f"from {card.source_lang} to {card.target_lang}" if card.words else "without tokenizers in its card"
            raise UsageError(
                f"--like {folder}: give the folder of a whole dataset of posnet-prepare from {' to '.join(languages)}. "
                f"This one is {of}{f', and lacks {missing[0]}' if missing else ''}."
            )
        return made

    @property
    def dictionaries(self) -> list[Path]:
        """The files of the dictionaries of source and target."""
        return self.paths(self.dictionary_files)

    def paths(self, names: Iterable[str]) -> list[Path]:
        """Return files of the dataset by their names, each once."""
        return [self.folder / name for name in dict.fromkeys(names)]

    def digests(self, names: Iterable[str]) -> list[str]:
        """Return hashes of files of the dataset by their names, each once."""
        return [digest(path) for path in self.paths(names)]

    def copy_subwords(self, folder: Path) -> None:
        """Copy the files of subwords into a folder."""
        for path in self.paths(self.subword_files.values()):
            shutil.copy2(path, folder / path.name)
