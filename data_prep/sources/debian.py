"""The stages that read the descriptions of Debian's packages and their translations."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posnet_data_prep.datasets import FURTHER_TESTS, debian_indexes
from posnet_data_prep.sources.apt import decompress_lz4
from posnet_data_prep.sources.document_sets import Document, Sets, drop_near_duplicates, split_families, write_documents
from posnet_data_prep.sources.download import Downloads
from posnet_data_prep.sources.interface_texts import Cleaner
from posnet_data_prep.sources.near_duplicates import LEAST
from posnet_data_prep.sources.package_descriptions import read_descriptions
from posnet_data_prep.sources.quickstart import OPTIONS, read_interface_texts
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import digest
from posnet_fairseq.shared.stages import Stage

# Pairs of each set but the training set, at least.
HELD_OUT = {"valid": 1000, "test": 2000}


def debian(languages: tuple[str, str], downloads: Downloads) -> Stage:
    """The stage that reads, cleans and splits package descriptions, paragraph by paragraph.

    Args:
        languages: source, which is English, and target.
        downloads: has the indexes, or downloads them.
    """

    def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
        documents, counts = read_documents(languages, downloads, folder, report)
        with report.stage("split documents"):
            return counts | _write_sets(folder, languages, _split(documents))

    return Stage("read", read, _options(languages), size=20 << 20)


def study(languages: tuple[str, str], downloads: Downloads) -> Stage:
    """The stage that reads package descriptions and interface texts, with a test set of each.

    Args:
        languages: source, which is English, and target.
        downloads: has the indexes and packages, or downloads them.
    """

    def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
        documents, counts = read_documents(languages, downloads, folder, report)
        interface = read_interface_texts(languages[1], downloads, report)
        with report.stage("split documents"):
            sets = _split(documents) | {FURTHER_TESTS[0]: []}
            for name, of_interface in {"train": "train", "valid": "valid", FURTHER_TESTS[0]: "test"}.items():
                sets[name].append(Document("", tuple(interface[of_interface])))
            return counts | _write_sets(folder, languages, sets)

    return Stage("read", read, {"interface texts": OPTIONS} | _options(languages), size=28 << 20)


def _options(languages: tuple[str, str]) -> dict[str, Any]:
    """Plain values that the text depends on."""
    return {
        "indexes": [index.name for index in debian_indexes(languages)],
        "languages": list(languages),
        "held out": HELD_OUT,
        "near-duplicates": LEAST,
    }


def _split(documents: Sequence[Document]) -> Sets:
    """Documents of each set.

    Raises:
        UsageError: there are none for training.
    """
    sets = split_families(documents, HELD_OUT)
    if not sets["train"]:
        raise UsageError(
            f"{sum(len(document.pairs) for document in documents):,} pairs are too few for validation and test set, "
            f"which have {sum(HELD_OUT.values()):,}, and a training set. --mirror needs the whole indexes of one suite."
        )
    return sets


def _write_sets(folder: Path, languages: tuple[str, str], sets: Sets) -> dict[str, Any]:
    """Write sets without near-duplicates between them. Returns the counts of each."""
    kept, dropped = drop_near_duplicates(sets)
    return {
        name: write_documents(folder, name, languages, documents) | {"near-duplicates left out": dropped[name]}
        for name, documents in kept.items()
    }


def read_documents(
    languages: tuple[str, str], downloads: Downloads, folder: Path, report: ProgressReporter
) -> tuple[list[Document], dict[str, Any]]:
    """Descriptions with translations that have as many paragraphs, without pairs that are no translations.

    Args:
        languages: source and target.
        downloads: has the indexes, or downloads them.
        folder: existing folder for temporary files, whose names begin with a dot.
        report: shows progress.

    Returns:
        The documents, and counts: ``documents`` with a translation, ``other paragraphs`` of them with more or fewer
        paragraphs in the translation, ``pairs`` that are different, ``unusable`` pairs that cleaning leaves out, and
        ``digests`` of the indexes, decompressed, by name.

    Raises:
        UsageError: an index cannot be downloaded or read, or the two have no text in common.
    """
    found, digests = [], {}
    for language, index in zip(languages, debian_indexes(languages), strict=True):
        path = decompress_lz4(downloads.fetch(index), folder / f".{index.name}")
        with report.stage(f"read {index.name}"):
            found.append(read_descriptions(path, language))
            digests[index.name] = f"sha256:{digest(path, 'sha256')}"
    source, target = found
    shared = [key for key in source if key in target]
    if not shared:
        raise UsageError(f"{' and '.join(digests)} share no description. Give --mirror indexes of one suite.")
    documents, counts = [], Counter(documents=len(shared))
    names: Counter[str] = Counter()
    pairs: set[tuple[str, str]] = set()
    cleaner = Cleaner(languages[1])
    for key in shared:
        if len(source[key].paragraphs) != len(target[key].paragraphs):
            counts["other paragraphs"] += 1
            continue
        rows = list(zip(source[key].paragraphs, target[key].paragraphs, strict=True))
        pairs.update(rows)
        usable = tuple(row for row in rows if cleaner.is_usable(*row))
        name = source[key].package
        names[name] += 1
        if usable:
            documents.append(Document(f"{name}/{names[name]}" if names[name] > 1 else name, usable))
    counts["pairs"] = len(pairs)
    counts["unusable"] = len(pairs) - len({pair for document in documents for pair in document.pairs})
    return documents, {**counts, "digests": digests}
