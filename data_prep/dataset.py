"""What a dataset is, and how its text becomes tokens."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posnet_data_prep.sources.archives import Archive
from posnet_data_prep.sources.download import Downloads
from posnet_fairseq.shared.stages import FolderStage

SETS = ("train", "valid", "test")


@dataclass(frozen=True)
class Recipe:
    """Settings of how text becomes tokens, those of :class:`posnet_fairseq.text.tokenizers.Tokenizer` among them."""

    tokenizer: str = "jieba"  # of Chinese, or "characters"; other languages are tokenized as Moses does
    normalise: bool = False
    split_hyphens: bool = True
    straighten_apostrophes: bool = False  # of the test set and of text to be translated only
    lowercase: bool = False
    lowercase_first: bool = False
    clean: str | None = "pieces"  # unit of the limits of training pairs; or "words", before the split; None: no limits
    min_length: int = 1  # units that each side may have
    max_length: int = 250
    max_ratio: float = 1.5  # units of one side per unit of the other, at most
    valid_every: int | None = None  # every N-th pair goes to the validation set; None: the corpus has one
    subwords: str = "bpe"  # or "sentencepiece", which splits plain text
    merges: tuple[int, ...] = (10_000,)  # of BPE, learned jointly, or a number for each language
    pieces: int = 32_000  # of sentencepiece
    lossless: bool = False  # sentencepiece keeps all white space, and splits characters without a piece into bytes
    normal_form: str = ""  # of the source side's tokens
    symbols: tuple[str, ...] = ()  # that are never split
    drop_repeated: bool = False  # training pairs that equal an earlier one
    drop_copies: bool = False  # training pairs of equal sides
    drop_other_scripts: bool = False  # training pairs with a side whose letters are all of another script
    join: int = 1  # sentences that are joined to a line, at most, when subwords and dictionaries are there


# For sentence pairs of one's own.
OWN_PAIRS = Recipe(subwords="sentencepiece", pieces=10_000, lossless=True, normal_form="spaces")
# For interface texts and text of one language.
SMALL_TEXT = Recipe(subwords="sentencepiece", pieces=3000, clean=None)


@dataclass(frozen=True, kw_only=True)
class Dataset(abc.ABC):
    """A dataset that can be downloaded, and how it is read and prepared."""

    languages: tuple[str, str]
    recipe: Recipe
    pairs: Mapping[str, int]  # of each set in the literature, else of the training set
    title: str  # a few words for the list of datasets
    test_sets: dict[str, str] | None = None  # what each of several test sets consists of
    size: str = "tiny"  # of models that are trained on it, unless another is given

    @property
    @abc.abstractmethod
    def files(self) -> Sequence[Archive]:
        """All files that must be downloaded for it."""

    @abc.abstractmethod
    def read(self, stages: Path, downloads: Downloads) -> FolderStage:
        """Return the stage that writes its plain text to files SET.LANGUAGE, with a ``lines`` count for each set."""

    def lacks(self, downloads: Downloads) -> str:
        """Return a sentence about text that is missing and cannot be downloaded, "" if there is none."""
        return ""
