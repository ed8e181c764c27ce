"""The stages that read published corpora: extraction from their archives, and reading."""

import shutil
from pathlib import Path
from typing import Any

from posnet_data_prep.datasets import Corpus, Dataset
from posnet_data_prep.sources.archives import Archive
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
            Part(
                Path(corpus.member or corpus.archive).name,
                corpus.form,
                [folder / _flat(*file) for file in dataset.files(corpus)],
            )
            for corpus in corpora
        ]

    def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
        reader = Reader(strict=False)
        sets = {name: parts(corpora) for name, corpora in dataset.sets.items()}
        sets["train"] += [Part(stem, "plain", paths) for stem, paths in local.items()]
        counts: dict[str, Any] = {
            name: write_set(folder, name, dataset.languages, reader, of_set, report) for name, of_set in sets.items()
        }
        if reader.repaired:
            report.say(f"{reader.repaired:,} lines had bytes that are not UTF-8; they became U+FFFD")
        return counts | {"lines mended": reader.repaired}

    corpora = [[corpus.member or corpus.archive, corpus.form] for corpus in dataset.corpora]
    options: dict[str, Any] = {"corpora": corpora}
    options["local"] = {stem: [digest(path, "sha256") for path in paths] for stem, paths in local.items()}
    return Stage("read", read, options, (extraction,), size)


def _extraction(dataset: Dataset, downloads: Downloads, size: int) -> Stage:
    """The stage that downloads the archives of a dataset and extracts its corpora."""
    members: dict[Archive, list[str]] = {}
    for corpus in dataset.corpora:
        for archive, path in dataset.files(corpus):
            members.setdefault(archive, []).append(path)

    def extract_all(folder: Path, report: ProgressReporter) -> dict[str, Any]:
        for archive, paths in members.items():
            downloaded = downloads.fetch(archive)
            if paths == [""]:
                shutil.copyfile(downloaded, folder / _flat(archive, ""))
                continue
            with report.stage(f"extract {archive.name}", "bytes") as bar:
                extract(downloaded, {path: _flat(archive, path) for path in paths}, folder, bar)
        return {}

    options = {archive.name: [archive.digest, *sorted(paths)] for archive, paths in members.items()}
    return Stage("extract", extract_all, options, size=size, temporary=True)


def _flat(archive: Archive, member: str) -> str:
    """Name of the file that a member of an archive, or the archive itself, is extracted to."""
    return (member or archive.name).replace("/", "_")


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
