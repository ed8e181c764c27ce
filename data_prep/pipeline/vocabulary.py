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
        """The vocabulary of a dataset.

        Args:
            folder: of the dataset.
            languages: source and target of the text.

        Raises:
            UsageError: posnet-prepare has not made it, a file is missing, or it is of other languages.
        """
        try:
            card = DatasetCard.read(folder)
        except FileNotFoundError as error:
            raise UsageError(
                f"--like {folder}: it has no card (dataset.json). Give a folder that posnet-prepare made."
            ) from error
        if (card.source_lang, card.target_lang) != tuple(languages):
            theirs = f"{card.source_lang} to {card.target_lang}"
            raise UsageError(f"--like {folder}: it is from {theirs}, the text from {' to '.join(languages)}.")
        files = card.bpe_codes or card.sentencepiece_model
        if not files or isinstance(card.sentencepiece_model, dict) or not set(languages) <= card.words.keys():
            raise UsageError(f"--like {folder}: its card does not say how text became tokens. Give another folder.")
        made = cls(
            folder,
            "bpe" if card.bpe_codes else "sentencepiece",
            [card.words[language] for language in languages],
            dict.fromkeys(languages, files) if isinstance(files, str) else {each: files[each] for each in languages},
            tuple(f"dict.{language}.txt" for language in languages),
        )
        for path in (*made.paths(made.subword_files.values()), *made.dictionaries):
            if not path.is_file():
                raise UsageError(f"--like {folder}: it has no {path.name}. Give a whole dataset.")
        return made

    @property
    def dictionaries(self) -> list[Path]:
        """Files of the dictionaries of source and target."""
        return self.paths(self.dictionary_files)

    def paths(self, names: Iterable[str]) -> list[Path]:
        """Files of the dataset by their names, each once."""
        return [self.folder / name for name in dict.fromkeys(names)]

    def digests(self, names: Iterable[str]) -> list[str]:
        """Hashes of files of the dataset by their names, each once."""
        return [digest(path, "sha256") for path in self.paths(names)]

    def copy_subwords(self, folder: Path) -> None:
        """Copy the files of subwords into a folder."""
        for path in self.paths(self.subword_files.values()):
            shutil.copy2(path, folder / path.name)
