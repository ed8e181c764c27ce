"""Descriptions of Debian's packages and their translations: apt's indexes ``Translation-LANGUAGE``."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from posnet_data_prep.dataset import Dataset
from posnet_data_prep.sources import document_sets
from posnet_data_prep.sources.archives import WHEELS, Archive, package_descriptions
from posnet_data_prep.sources.document_sets import Document
from posnet_data_prep.sources.download import Downloads
from posnet_data_prep.sources.interface_texts import SETTINGS, Cleaner, read_interface_texts
from posnet_data_prep.sources.transfer import decompress_lz4
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import iterate_lines
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import digest
from posnet_fairseq.shared.stages import FolderStage

# Pairs of each set but the training set, at least.
HELD_OUT = {"valid": 1000, "test": 2000}
_NAME, _HASH = "Package: ", "Description-md5: "


@dataclass(frozen=True, kw_only=True)
class PackageDescriptions(Dataset):
    """Descriptions of Debian's packages, from English, paragraph by paragraph, perhaps with interface texts."""

    with_interface_texts: bool = False  # which have a test set of their own

    @property
    def files(self) -> Sequence[Archive]:
        """The index of each language, and the packages of the programs."""
        return [*map(package_descriptions, self.languages), *(WHEELS if self.with_interface_texts else ())]

    def read(self, stages: Path, downloads: Downloads) -> FolderStage:
        """Return the stage that reads, cleans and splits the descriptions."""

        def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
            documents, counts = read_documents(self.languages, downloads, folder, report)
            sets = document_sets.split_families(documents, HELD_OUT)
            if not sets["train"]:
                raise UsageError(
                    f"{sum(len(document.pairs) for document in documents):,} pairs are too few for validation and test "
                    f"set, which have {sum(HELD_OUT.values()):,}, and a training set. --mirror needs the whole indexes "
                    "of one suite."
                )
            if self.with_interface_texts:
                texts = read_interface_texts(self.languages[1], downloads, report)
                for name, pairs in zip(("train", "valid", "test1"), texts.values(), strict=True):
                    sets.setdefault(name, []).append(Document("", tuple(pairs)))
            with report.stage("split documents"):
                kept, dropped = document_sets.drop_near_duplicates(sets)
                return counts | {
                    name: document_sets.write_documents(folder, name, self.languages, of)
                    | {"near-duplicates left out": dropped[name]}
                    for name, of in kept.items()
                }

        settings: dict[str, Any] = {
            **({"interface texts": SETTINGS} if self.with_interface_texts else {}),
            "indexes": [index.name for index in map(package_descriptions, self.languages)],
            "languages": list(self.languages),
            "held out": HELD_OUT,
            "near-duplicates": document_sets.LEAST,
        }
        return FolderStage(stages / "read", read, settings, size=28 << 20)


def read_documents(
    languages: tuple[str, str], downloads: Downloads, folder: Path, report: ProgressReporter
) -> tuple[list[Document], dict[str, Any]]:
    """Read descriptions with translations that have as many paragraphs, without pairs that are no translations.

    The counts are of ``documents`` with a translation, of those with ``other paragraphs``, of different ``pairs`` and
    ``unusable`` ones; and ``digests`` of the indexes by name. Temporary files in the folder begin with a dot.
    """
    found, digests = [], {}
    for language, index in zip(languages, map(package_descriptions, languages), strict=True):
        path = decompress_lz4(downloads.fetch(index), folder / f".{index.name}")
        with report.stage(f"read {index.name}"):
            found.append(read_descriptions(path, language))
            digests[index.name] = f"sha256:{digest(path)}"
    source, target = found
    shared = [key for key in source if key in target]
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


class Description(NamedTuple):
    """The description of a package in one language: the short one, then the paragraphs of the long one."""

    package: str
    paragraphs: tuple[str, ...]


def read_descriptions(path: Path, language: str) -> dict[str, Description]:
    """Return the descriptions of an index by the hash of the English text, which all translations of it share.

    Of packages with one text, the first one counts. The index may be compressed.
    """
    found: dict[str, Description] = {}
    starts = (_NAME, _HASH, f"Description-{language}: ")
    for number, record, ends in _records(path):
        about = f"{path}: the record that begins in line {number}"
        fields = [next((line for line in record if line.startswith(start)), "") for start in starts]
        if not ends and found:
            raise UsageError(f"{about} has no empty line behind it: the file is cut short. Copy it again.")
        if not all(fields):
            raise UsageError(
                f"{about} is not a description of a package in {language} ({', '.join(map(str.strip, starts))}). "
                f"Give an index Translation-{language} of apt."
            )
        lines = [line for line in record[record.index(fields[2]) + 1 :] if line.startswith(" ")]
        package, key, short = (field.removeprefix(start) for field, start in zip(fields, starts, strict=True))
        found.setdefault(key, Description(package, tuple(paragraphs(short, lines))))
    return found


def _records(path: Path) -> Iterator[tuple[int, list[str], bool]]:
    """Yield for each record the number of the line in which it begins, its lines, and whether an empty line ends it."""
    record: list[str] = []
    for number, line in enumerate(chain(iterate_lines(path), [None]), start=1):
        if line:
            record.append(line)
        elif record:
            yield number - len(record), record, line is not None
            record = []


def paragraphs(short: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield the paragraphs of a description: Debian Policy 5.6.13.

    In the long one, " ." ends a paragraph; a line that begins with two spaces stands alone: programs show it unchanged.
    """
    paragraph: list[str] = [short]
    for line in ["  ", *lines, " ."]:
        ends = line.strip() in ("", ".")
        verbatim = line.startswith("  ")
        if (ends or verbatim) and paragraph:
            yield " ".join(" ".join(paragraph).split())
            paragraph = []
        if not ends and verbatim:
            yield " ".join(line.split())
        elif not ends:
            paragraph.append(line)
