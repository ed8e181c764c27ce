"""What a dataset is, and how its text becomes tokens."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posnet_data_prep.sources.archives import Download
from posnet_data_prep.sources.download import Downloads
from posnet_fairseq.shared.stages import FolderStage

SETS = ("train", "valid", "test")
FURTHER_TESTS = ("test1", "test2")  # fairseq's names of a second and third test set


@dataclass(frozen=True)
class Recipe:
    """Settings of how text becomes tokens. Most are also options of posnet-prepare.

    Args:
        tokenizer: tokenizer of Chinese, ``jieba`` or ``characters``; other languages are tokenized as Moses does.
        normalise, split_hyphens, lowercase, lowercase_first: settings of
            :class:`posnet_fairseq.text.tokenizers.Tokenizer`.
        straighten_apostrophes: setting of the tokenizer, applied to the test set and to text to be translated only.
        clean: unit in which the lengths of training pairs are limited: ``words``, before the split and subwords, or
            ``pieces``, after them; None: pairs are not limited.
        min_length, max_length: numbers of units that each side may have.
        max_ratio: largest number of units of one side per unit of the other.
        valid_every: every N-th pair goes to the validation set; None: the corpus has a validation set.
        subwords: ``bpe``, or ``sentencepiece``, which splits plain text.
        merges: number of BPE merges learnt jointly, or one number for each language.
        pieces: vocabulary size of sentencepiece.
    """

    tokenizer: str = "jieba"
    normalise: bool = False
    split_hyphens: bool = True
    straighten_apostrophes: bool = False
    lowercase: bool = False
    lowercase_first: bool = False
    clean: str | None = "pieces"
    min_length: int = 1
    max_length: int = 250
    max_ratio: float = 1.5
    valid_every: int | None = None
    subwords: str = "bpe"
    merges: tuple[int, ...] = (10_000,)
    pieces: int = 32_000


# For interface texts and text of one language.
SMALL_TEXT = Recipe(subwords="sentencepiece", pieces=3000, clean=None)


@dataclass(frozen=True, kw_only=True)
class Dataset(abc.ABC):
    """A dataset that can be downloaded, and how it is read and prepared."""

    languages: tuple[str, str]
    recipe: Recipe
    pairs: Mapping[str, int]
    title: str
    test_sets: dict[str, str] | None = None
    size: str = "tiny"

    @property
    @abc.abstractmethod
    def files(self) -> Sequence[Download]:
        """All files that must be downloaded for it."""

    @abc.abstractmethod
    def read(self, stages: Path, downloads: Downloads) -> FolderStage:
        """Return the stage that writes its plain text to files SET.LANGUAGE, with a ``lines`` count for each set."""

    def lacks(self, downloads: Downloads) -> str:
        """Return a sentence about text that is missing and cannot be downloaded, "" if there is none."""
        return ""
