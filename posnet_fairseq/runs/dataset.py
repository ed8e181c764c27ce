"""Languages, key and casing of a dataset for translation."""

import re
from dataclasses import dataclass
from pathlib import Path

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.card import CARD, DatasetCard


@dataclass(frozen=True)
class TranslationData:
    """A dataset for translation, as its card describes it."""

    source: str  # language
    target: str
    key: str  # hash of all that the data was made of
    test_sets: tuple[str, ...] = ("test",)  # fairseq's names, perhaps with test1
    lowercase: bool = False  # whether the target side is, and so are translations: scores must ignore case
    exists: bool = True  # False in a dry run without a dataset

    @classmethod
    def read(cls, folder: Path, dry_run: bool = False) -> "TranslationData":
        """Return the dataset in a folder; in a dry run capitals stand for languages where there is none."""
        path = folder / CARD
        if not path.exists():
            if dry_run:
                return cls("SOURCE", "TARGET", "unknown", exists=False)
            raise UsageError(f"{folder}: there is no dataset yet. Run the stage prepare first.")
        card = DatasetCard.read(folder)
        found = card.source_lang, card.target_lang, card.key
        if not all(text and re.fullmatch(r"[\w.-]+", text) for text in found):
            raise UsageError(f"{path} does not say both languages: it is no dataset for translation.")
        source, target, key = map(str, found)
        tests = tuple(name for name in card.sentences or () if name.startswith("test")) or cls.test_sets
        return cls(source, target, key, tests, card.is_lowercase(target))
