"""Documents of sentence pairs, split into sets that share no text, not even nearly, and their files."""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from posnet_fairseq.shared.files import write_lines

Pair = tuple[str, str]

# A family with more pairs would make most of a set; it belongs to the training set.
MOST_HELD_OUT = 100
# Dice coefficient of the sets of words of near-duplicates, at least.
LEAST = 0.8

_WORD = re.compile(r"\w+")
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Document:
    """A document: its name, and its pairs of source and target in order. Pairs of no document have no name."""

    name: str
    pairs: tuple[Pair, ...]


Sets = dict[str, list[Document]]


def split_families(documents: Sequence[Document], sizes: Mapping[str, int]) -> Sets:
    """Split documents into sets such that documents that share a source or a target are in the same set.

    Families of documents, in the order of a hash of their first name, fill the sets of `sizes` (different pairs, at
    least) one after the other; all others, and families of more than 100 pairs, are the training set.
    """
    families = _families(documents)
    pairs = {family: {pair for document in of for pair in document.pairs} for family, of in families.items()}
    small = [family for family in families if len(pairs[family]) <= MOST_HELD_OUT]
    rest = iter(sorted(small, key=lambda family: hashlib.sha256(family.encode()).digest()))
    set_of: dict[str, str] = {}
    for name, size in sizes.items():
        count = 0
        while count < size and (family := next(rest, None)) is not None:
            count += len(pairs[family])
            set_of |= {document.name: name for document in families[family]}
    sets: Sets = {name: [] for name in ("train", *sizes)}
    for document in documents:
        sets[set_of.get(document.name, "train")].append(document)
    return sets


def _families(documents: Iterable[Document]) -> dict[str, list[Document]]:
    """Return documents that share a source or a target, also by way of others, under the first of their names."""
    from scipy.cluster.hierarchy import DisjointSet  # 0.3 seconds

    documents, sharing = list(documents), DisjointSet()
    for document in documents:
        own = ("name", document.name)
        sharing.add(own)
        for pair in document.pairs:
            for text in zip(("source", "target"), pair, strict=True):
                sharing.add(text)
                sharing.merge(own, text)
    found = defaultdict(list)
    for document in documents:
        found[sharing["name", document.name]].append(document)
    return {min(document.name for document in family): family for family in found.values()}


def drop_near_duplicates(sets: Sets) -> tuple[Sets, dict[str, int]]:
    """Drop pairs whose source or target is a near-duplicate of one of a later set; count them. Test sets stay."""
    kept: Sets = {}
    dropped: dict[str, int] = {}
    later: list[Pair] = []
    for name in reversed(sets):
        held = [] if name.startswith("test") else [NearDuplicates(side) for side in zip(*later, strict=True)]
        pairs = dict.fromkeys(pair for document in sets[name] for pair in document.pairs)
        clean = {pair for pair in pairs if not any(text in lines for text, lines in zip(pair, held, strict=False))}
        documents = (replace(of, pairs=tuple(filter(clean.__contains__, of.pairs))) for of in sets[name])
        kept[name] = [document for document in documents if document.pairs]
        dropped[name] = len(pairs) - len(clean)
        later += sorted(clean)
    return {name: kept[name] for name in sets}, {name: dropped[name] for name in sets}


class NearDuplicates:
    """Finds near-duplicates of given lines: Dice coefficient of the sets of words of 0.8 or more.

    Case, punctuation and the values of numbers are ignored. A line without words has no near-duplicates.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        known = list(dict.fromkeys(map(_words, lines)))
        self._frequency = Counter(word for words in known for word in words)
        self._by_word: dict[str, list[frozenset[str]]] = defaultdict(list)
        for words in known:
            for word in self._rarest(words):
                self._by_word[word].append(words)

    def __contains__(self, line: str) -> bool:
        """Return whether a line is a near-duplicate of one of the lines."""
        ours = _words(line)
        candidates = (theirs for word in self._rarest(ours) for theirs in self._by_word.get(word, ()))
        return any(2 * len(ours & theirs) >= LEAST * (len(ours) + len(theirs)) for theirs in candidates)

    def _rarest(self, words: frozenset[str]) -> Sequence[str]:
        """Return words of which near-duplicates share one: prefix filtering (Bayardo et al., 2007).

        Sets with a Dice coefficient of t share t / (2 - t) of the words of each, so the rarest words of the one, up to
        one more than the other set can lack, and those of the other have a word in common.
        """
        ordered = sorted(words, key=lambda word: (self._frequency[word], word))
        lacking = int(len(ordered) * (1 - LEAST / (2 - LEAST)) + 1e-9)
        return ordered[: lacking + 1]


def _words(line: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_DIGITS.sub("0", line.lower())))


def write_documents(folder: Path, name: str, languages: Sequence[str], documents: Sequence[Document]) -> dict[str, int]:
    """Write a set's different pairs, each one line of ``NAME.LANGUAGE``, and the lines that each document has.

    ``NAME.documents`` has a line for each document: its name, a tab, and the numbers of its lines, from 1, in order.
    """
    pairs = dict.fromkeys(pair for document in documents for pair in document.pairs)
    numbers = {pair: number for number, pair in enumerate(pairs, start=1)}
    for side, language in enumerate(languages):
        write_lines(folder / f"{name}.{language}", (pair[side] for pair in pairs))
    named = [of for of in documents if of.name]
    rows = (f"{of.name}\t{' '.join(str(numbers[pair]) for pair in of.pairs)}" for of in named)
    if named:
        write_lines(folder / f"{name}.documents", rows)
    return {"lines": len(pairs), "documents": len(named)}
