"""A shortlist: the target words that a source word is translated by, so that the search need not look at all others."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from posnet_fairseq.inference.lexicon import Corpus, learn_lexicon
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_file, replacing, utf8_name
from posnet_fairseq.text.binary_format import binarized_set, read_tokens
from posnet_fairseq.text.dictionary import Dictionary, Vocabulary, dictionary_file

_KIND = "posnet shortlist 1"  # what a file is, and the version of its format
BEST, FREQUENT = 40, 100
SENTENCES = 500_000
_SPECIAL = Dictionary.nspecial


@dataclass(frozen=True, eq=False)
class Shortlist:
    """Target words for each source word, all int64."""

    starts: Tensor  # (V + 1,) where the target words of each of the V source words start in `words`
    words: Tensor  # (T,) their ids
    always: Tensor  # (A,) ids of the target words that are in every shortlist, the special symbols among them

    def of(self, sources: Iterable[Tensor], others: Iterable[Tensor] = ()) -> Tensor:
        """Return (W,) ids of the target words of some sources, and `others`, ascending; special symbols keep theirs."""
        seen = torch.cat(list(sources)).unique()
        lengths = self.starts[seen + 1] - self.starts[seen]
        before = lengths.cumsum(0) - lengths
        place = torch.arange(int(lengths.sum())) + (self.starts[seen] - before).repeat_interleave(lengths)
        return torch.cat([self.always, self.words[place], *others]).unique()

    def save(self, path: str | Path, vocabulary: Vocabulary) -> None:
        """Write the shortlist for these dictionaries."""
        about = {"kind": _KIND, **_digests(vocabulary)}
        tensors = {"starts": self.starts, "words": self.words.int(), "always": self.always.int()}
        with replacing(path) as temporary:
            temporary.write_bytes(save(tensors, about))

    @classmethod
    def load(cls, path: str | Path, vocabulary: Vocabulary) -> Self:
        """Read the shortlist of a file, and refuse one that is damaged or of other dictionaries than the model's."""
        check_file(path)
        try:
            with utf8_name(path) as name, safe_open(name, "pt") as file:
                about = file.metadata() or {}
                if about.get("kind") != _KIND:
                    raise UsageError(f"{path} is no shortlist, or one of another version. Make it again.")
                for side, digest in _digests(vocabulary).items():
                    if about.get(side) != digest:
                        raise UsageError(
                            f"{path} was made for another {side} dictionary than the model's. Make one from the "
                            "data that the model was trained on."
                        )
                tensors = {name: file.get_tensor(name) for name in ("starts", "words", "always")}
            if any(tensor.is_floating_point() or tensor.dim() != 1 for tensor in tensors.values()):
                raise KeyError("tensors of other kinds")
            shortlist = cls(**{name: tensor.long() for name, tensor in tensors.items()})
            if not shortlist._fits(vocabulary):
                raise KeyError("numbers out of range")
        except (SafetensorError, OSError, KeyError) as error:
            raise UsageError(f"{path} is damaged or no shortlist. Copy it again, or make it again.") from error
        return shortlist

    def _fits(self, vocabulary: Vocabulary) -> bool:
        """Return whether all numbers are in range."""
        words = torch.cat([self.words, self.always])
        return (
            len(self.starts) == len(vocabulary.source_dictionary) + 1
            and self.starts[[0, -1]].tolist() == [0, len(self.words)]
            and bool(((self.starts >= 0) & (self.starts <= len(self.words))).all())  # so that no difference overflows
            and bool((self.starts.diff() >= 0).all())
            and bool(((words >= 0) & (words < len(vocabulary.target_dictionary))).all())
            and set(range(_SPECIAL)) <= set(self.always.tolist())
        )


def make_shortlist(folder: str | Path, vocabulary: Vocabulary, best: int = BEST, frequent: int = FREQUENT) -> Shortlist:
    """Return the shortlist of a training set: for each source word its `best` translations by IBM model 1.

    The `frequent` target words are in every shortlist. At most :data:`SENTENCES` pairs, spread evenly over the set in
    the directory that fairseq-preprocess wrote, are learned from.
    """
    stem = binarized_set(Path(folder), "train", vocabulary.languages)
    for language, dictionary in zip(vocabulary.languages, vocabulary.dictionaries, strict=True):
        path = Path(folder, dictionary_file(language))
        if path.exists() and Dictionary.load(path) != dictionary:
            raise UsageError(f"{path} is not the model's dictionary. Give the data that the model was trained on.")
    if len({len(read_tokens(f"{stem}.{language}")[1]) for language in vocabulary.languages}) > 1:
        raise UsageError(f"{stem} has different numbers of sentences in its two languages. Binarize the text again.")
    source, target = (
        _corpus(f"{stem}.{language}", len(dictionary))
        for language, dictionary in zip(vocabulary.languages, vocabulary.dictionaries, strict=True)
    )
    words = len(vocabulary.target_dictionary)
    sources, targets, probabilities = learn_lexicon(source, target, words)
    # Of each source word, the likeliest first.
    order = np.lexsort((-probabilities, sources))
    counts = np.bincount(sources, minlength=len(vocabulary.source_dictionary))
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = order[rank < best]
    starts = np.concatenate([[0], np.cumsum(np.minimum(counts, best))])
    seen = np.bincount(target.tokens, minlength=words)
    seen[:_SPECIAL] = 0
    often = np.argsort(-seen, kind="stable")[:frequent]
    always = np.union1d(np.arange(_SPECIAL), often[seen[often] > 0])
    return Shortlist(*(torch.from_numpy(each.astype(np.int64)) for each in (starts, targets[kept], always)))


def _corpus(path: str, words: int) -> Corpus:
    """Return at most :data:`SENTENCES` sentences of one side of a training set, without their end symbols."""
    tokens, sizes = read_tokens(path)
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < words:
        raise UsageError(
            f"{path}.bin has words that the model's dictionary, of {words} entries, does not have. Give the data that "
            "the model was trained on."
        )
    chosen = np.linspace(0, max(len(sizes) - 1, 0), min(SENTENCES, len(sizes)), dtype=np.int64)
    starts = np.cumsum(sizes, dtype=np.int64) - sizes
    return Corpus(tokens, starts[chosen], np.maximum(sizes[chosen] - 1, 0))


def _digests(vocabulary: Vocabulary) -> dict[str, str]:
    """Return hashes of the two dictionaries."""
    return {
        side: hashlib.sha256("\n".join(dictionary.symbols).encode()).hexdigest()
        for side, dictionary in zip(("source", "target"), vocabulary.dictionaries, strict=True)
    }
