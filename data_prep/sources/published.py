"""The stages that read published corpora: extraction from their archives, and reading."""

from pathlib import Path
from typing import Any

from posnet_data_prep.datasets import ARCHIVES, Corpus, Dataset
from posnet_data_prep.sources.download import Downloads
from posnet_data_prep.sources.extract import extract
from posnet_data_prep.sources.parallel import Part, write_set
from posnet_data_prep.sources.readers import Reader
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import ProgressReporter, shown
from posnet_fairseq.shared.records import digest
from posnet_fairseq.shared.stages import Stage, StageRunner

BYTES_PER_PAIR = 300  # of WMT's corpora, both sides, about
_LOCAL_ENDINGS = {"en": ("en",), "zh": ("ch", "cn", "zh")}


def published(runner: StageRunner, dataset: Dataset, downloads: Downloads) -> Stage:
    """The stage that reads a published dataset. It follows the stage that extracts its files.

    Args:
        runner: does the stages.
        dataset: what to read.
        downloads: has the archives, or downloads them.

    Raises:
        UsageError: a local file has no translation beside it.
    """
    size = 1000 * BYTES_PER_PAIR * sum(corpus.lines for corpus in dataset.corpora)
    extraction = _extraction(dataset, downloads, size)
    local = local_pairs(dataset, downloads)

    def parts(corpora: tuple[Corpus, ...]) -> list[Part]:
        folder = runner.of(extraction)
        return [
            Part(Path(corpus.member).name, corpus.form, [folder / _flat(path) for path in dataset.members(corpus)])
            for corpus in corpora
        ]

    def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
        reader = Reader(strict=False)
        sets = {
            "train": parts(dataset.train) + [Part(stem, "plain", paths) for stem, paths in local.items()],
            "test": parts(dataset.test),
        }
        counts: dict[str, Any] = {
            name: write_set(folder, name, dataset.languages, reader, of_set, report) for name, of_set in sets.items()
        }
        if reader.repaired:
            report.say(f"{reader.repaired:,} lines had bytes that are not UTF-8; they became U+FFFD")
        return counts | {"lines mended": reader.repaired}

    options: dict[str, Any] = {"corpora": [[corpus.member, corpus.form] for corpus in dataset.corpora]}
    options["local"] = {stem: [digest(path, "sha256") for path in paths] for stem, paths in local.items()}
    return Stage("read", read, options, (extraction,), size)


def _extraction(dataset: Dataset, downloads: Downloads, size: int) -> Stage:
    """The stage that downloads the archives of a dataset and extracts its corpora."""
    members = {
        archive: [
            path
            for corpus in dataset.corpora
            if ARCHIVES[corpus.archive] == archive
            for path in dataset.members(corpus)
        ]
        for archive in dataset.archives
    }

    def extract_all(folder: Path, report: ProgressReporter) -> dict[str, Any]:
        for archive, paths in members.items():
            downloaded = downloads.fetch(archive)
            with report.stage(f"extract {archive.name}", "bytes") as bar:
                extract(downloaded, {path: _flat(path) for path in paths}, folder, bar)
        return {}

    options = {archive.name: [archive.digest, *sorted(paths)] for archive, paths in members.items()}
    return Stage("extract", extract_all, options, size=size, temporary=True)


def _flat(member: str) -> str:
    """Name of the file that a member of an archive is extracted to."""
    return member.replace("/", "_")


def local_pairs(dataset: Dataset, downloads: Downloads) -> dict[str, list[Path]]:
    """Files of corpora that need a registration: source and target, by the name of the English file.

    Args:
        dataset: names the folder of these files, if any.
        downloads: has that folder.

    Raises:
        UsageError: a file has no translation beside it.
    """
    folder = downloads.find(dataset.local) if dataset.local else None
    if folder is None:
        return {}
    pairs = {}
    for english in sorted(folder.rglob("*_en.txt")):
        stem = english.name.removesuffix("_en.txt")
        found = []
        for language in dataset.languages:
            paths = [english.with_name(f"{stem}_{ending}.txt") for ending in _LOCAL_ENDINGS[language]]
            found += [path for path in paths if path.exists()][:1]
        if len(found) < len(dataset.languages):
            raise UsageError(f"{english} has no translation beside it ({stem}_ch.txt or {stem}_cn.txt). Complete it.")
        pairs[shown(english.relative_to(folder))] = found
    return pairs
