"""The vocabulary of another dataset: its tokenizers, subwords and dictionaries, for text of the same languages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.card import DatasetCard
from posnet_fairseq.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Vocabulary:
    """How the text of a dataset became tokens and numbers, for text of the same languages."""

    subwords: str
    tokenizers: list[Tokenizer]
    subword_files: dict[str, str]
    merges: list[Path]
    dictionaries: list[Path]

    @classmethod
    def read(cls, folder: Path, languages: Sequence[str]) -> "Vocabulary":
        """Return the vocabulary of a dataset, for text of a source and a target language."""
        try:
            card = DatasetCard.read(folder)
        except FileNotFoundError:
            card = DatasetCard()
        kind = "bpe" if card.bpe_codes else "sentencepiece"
        files = card.bpe_codes or card.sentencepiece_model or ""
        names = files if isinstance(files, dict) else dict.fromkeys(languages, files)
        problem = ""
        if card.source_lang and (card.source_lang, card.target_lang) != tuple(languages):
            problem = f"is from {card.source_lang} to {card.target_lang}"
        elif not set(languages) <= card.words.keys() & names.keys():
            problem = "has no card that says how text became tokens"
        merges = [folder / name for name in dict.fromkeys(names.values())]
        dictionaries = [folder / f"dict.{language}.txt" for language in languages]
        missing = [path.name for path in (*merges, *dictionaries) if not path.is_file()]
        if problem or missing:
            raise UsageError(
                f"--like {folder}: give the folder of a whole dataset of posnet-prepare from {' to '.join(languages)}. "
                f"This one {problem or f'lacks {missing[0]}'}."
            )
        return cls(kind, [card.words[language] for language in languages], names, merges, dictionaries)
