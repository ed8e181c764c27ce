"""Training, validation and test set by document, without test sentences that were seen in training."""

import hashlib
import re
from collections import Counter, defaultdict

from posnet_data_prep.quickstart.sentences import PLACEHOLDER

_DIGITS = re.compile(r"\d+")


def split_by_document(pairs):
    """Take sentence pairs apart into sets that share no document.

    Of 40 documents, two go to the test set and one to the validation set, by the hash of the name. A source has
    one translation, the most frequent. Validation and test sources that stand in an earlier set, digits,
    placeholders and case apart, are dropped.

    Args:
        pairs: iterable of (document, source, target).

    Returns:
        dict from ``train``, ``valid``, ``test`` to sorted lists of (source, target).
    """
    translations = defaultdict(Counter)
    sources = {"train": set(), "valid": set(), "test": set()}
    for document, source, target in pairs:
        translations[source][target] += 1
        sources[_set_of(document)].add(source)
    seen, sets = set(), {}
    for name, members in sources.items():
        fresh = sorted(source for source in members if _shape(source) not in seen)
        sets[name] = [(source, _most_frequent(translations[source])) for source in fresh]
        seen.update(_shape(source) for source in fresh)
    return sets


def _set_of(document):
    bucket = int(hashlib.sha256(document.encode()).hexdigest(), 16) % 40
    return "test" if bucket < 2 else "valid" if bucket == 2 else "train"


def _shape(source):
    return _DIGITS.sub("0", PLACEHOLDER.sub("{}", source.lower()))


def _most_frequent(counts):
    return min(counts, key=lambda target: (-counts[target], target))
