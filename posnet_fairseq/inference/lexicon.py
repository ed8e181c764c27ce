"""A lexicon: how likely a source word is translated by a target word, learned from sentence pairs.

IBM model 1 (Brown et al., The Mathematics of Statistical Machine Translation, Computational Linguistics 1993).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

ITERATIONS = 4
# Pairs of words whose probability falls below this after the first iteration are dropped: most are chance.
LEAST = 1e-4
_PAIRS = 5_000_000  # pairs of words that are looked at together


@dataclass(frozen=True)
class Corpus:
    """Sentences of one language as token ids."""

    tokens: np.ndarray  # (T,) of all sentences
    starts: np.ndarray  # (N,) index of the first token of each sentence
    lengths: np.ndarray  # (N,) tokens of each sentence


def learn_lexicon(source: Corpus, target: Corpus, target_words: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pairs of a source word and a target word, (P,) each, and (P,) the probability of the target word in each.

    They are in the order of source words, then of target words. `target_words` is the number of entries of the target's
    dictionary.
    """
    keys, counts = np.zeros(0, np.int64), np.zeros(0)
    for found, weights, _ in _pairs(source, target, target_words):
        some, index = np.unique(found, return_inverse=True)
        both = np.union1d(keys, some)
        sums = np.zeros(len(both))
        sums[np.searchsorted(both, keys)] = counts
        sums[np.searchsorted(both, some)] += np.bincount(index, weights, len(some))
        keys, counts = both, sums
    probabilities = _normalized(keys // target_words, counts)
    kept = probabilities >= LEAST
    keys, probabilities = keys[kept], probabilities[kept]
    for _ in range(ITERATIONS - 1):
        counts = np.zeros(len(keys))
        for found, _, each in _pairs(source, target, target_words):
            index = np.searchsorted(keys, found).clip(max=len(keys) - 1)
            likely = np.where(keys[index] == found, probabilities[index], 0)
            # Of all source words of the sentence, each has its share in the target word.
            total = np.bincount(each, likely)[each]
            counts += np.bincount(index, np.divide(likely, total, out=likely, where=total > 0), len(keys))
        probabilities = _normalized(keys // target_words, counts)
    return keys // target_words, keys % target_words, probabilities


def _pairs(source: Corpus, target: Corpus, target_words: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield every source word with every target word of its sentence, some sentences at a time.

    These are (P,) ids of the pairs, source · `target_words` + target; (P,) shares of the source word in the target
    word, if all source words of a sentence have the same; (P,) number of the target word in this part of the corpus.
    """
    pairs = source.lengths.astype(np.int64) * target.lengths
    ends = np.cumsum(pairs)
    first = 0
    while first < len(pairs):
        done = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + _PAIRS, side="right")))
        chosen = slice(first, last)
        size, width = pairs[chosen], target.lengths[chosen].astype(np.int64)
        sentence = np.repeat(np.arange(last - first), size)
        place = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        row, column = place // width[sentence], place % width[sentence]
        words = source.tokens[source.starts[chosen][sentence] + row].astype(np.int64)
        others = target.tokens[target.starts[chosen][sentence] + column].astype(np.int64)
        number = (np.cumsum(width) - width)[sentence] + column
        yield words * target_words + others, 1 / source.lengths[chosen][sentence], number
        first = last


def _normalized(sources: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return counts over their sum for each source word."""
    sums = np.bincount(sources, counts)
    return np.divide(counts, sums[sources], out=np.zeros_like(counts), where=counts > 0)
