"""Published corpora: extracted from their archives, and read."""

import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from posnet_data_prep.dataset import Dataset
from posnet_data_prep.sources.archives import ARCHIVES, Archive
from posnet_data_prep.sources.download import Downloads
from posnet_data_prep.sources.parts import Part, file_names, write_set
from posnet_data_prep.sources.readers import Reader
from posnet_fairseq.shared.compressed import open_binary
from posnet_fairseq.shared.errors import UsageError, counted
from posnet_fairseq.shared.progress import Bar, ProgressReporter, shown
from posnet_fairseq.shared.records import digest
from posnet_fairseq.shared.stages import FolderStage

BYTES_PER_PAIR = 300  # of WMT's corpora, both sides, about
_CHINESE = ("ch", "cn", "zh")  # endings of names of local files


@dataclass(frozen=True)
class Corpus:
    """Files of sentence pairs, in an archive or each by itself."""

    archive: str  # key of ARCHIVES, in which {lang} is the language
    member: str = ""  # path in it, in which {lang} is the language and {side} src or ref; "": the archive itself
    form: str = "plain"  # method of Reader
    lines: int = 0  # thousands of sentence pairs, about

    def sides(self, languages: Sequence[str]) -> list[tuple[Archive, str]]:
        """Return the archive, and the path in it, of each side: source, target."""
        return [
            (ARCHIVES[self.archive.format(lang=language)], self.member.format(lang=language, side=side))
            for language, side in zip(languages, ("src", "ref"), strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class Published(Dataset):
    """A published dataset: corpora of each set, and perhaps training text of a folder that cannot be downloaded.

    The ``local`` folder, among the downloads, has files NAME_en.txt, NAME_ch.txt or NAME_cn.txt.
    """

    sets: Mapping[str, tuple[Corpus, ...]]
    title: str = "as in PosNet's paper"
    size: str = "base"
    local: str | None = None

    @property
    def files(self) -> list[Archive]:
        """Archives of all corpora, each once."""
        return list(dict.fromkeys(archive for corpus in self._corpora for archive, _ in corpus.sides(self.languages)))

    @property
    def _corpora(self) -> list[Corpus]:
        return [corpus for corpora in self.sets.values() for corpus in corpora]

    def lacks(self, downloads: Downloads) -> str:
        """Return a sentence about the local text if it is not there, else ""."""
        if not self.local or self._local_pairs(downloads):
            return ""
        lack = f"has no files NAME_en.txt with NAME_{_CHINESE[0]}.txt" if downloads.find(self.local) else "is not there"
        return (
            f"{downloads.folder / self.local} {lack}, so {self.local.upper()}, which one must register for, is "
            "left out. The training set is smaller than the paper's."
        )

    def read(self, stages: Path, downloads: Downloads) -> FolderStage:
        """Return the stage that reads the dataset. It follows the stage that extracts its files."""
        size = 1000 * BYTES_PER_PAIR * sum(corpus.lines for corpus in self._corpora)
        extraction = self._extraction(stages, downloads, size)
        local = self._local_pairs(downloads)
        reader = Reader()

        def part(corpus: Corpus) -> Part:
            paths = [extraction.folder / _flat(*side) for side in corpus.sides(self.languages)]
            title = Path(corpus.member or corpus.archive).name.replace(".{lang}", "")
            return Part(getattr(reader, corpus.form), paths, title)

        def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
            sets = {name: list(map(part, corpora)) for name, corpora in self.sets.items()}
            sets["train"] += [Part(reader.plain, paths, stem) for stem, paths in local.items()]
            names = file_names(path for parts in sets.values() for part in parts for path in part.paths)
            counts: dict[str, Any] = {
                name: write_set(folder, name, self.languages, parts, names, report) for name, parts in sets.items()
            }
            if reader.repaired:
                report.say(f"{counted(reader.repaired, 'line')} had bytes that are not UTF-8; they became U+FFFD")
            return counts | {"lines mended": reader.repaired}

        settings: dict[str, Any] = {
            "corpora": [[corpus.member or corpus.archive, corpus.form] for corpus in self._corpora],
            "local": {stem: list(map(digest, paths)) for stem, paths in local.items()},
        }
        return FolderStage(stages / "read", read, settings, (extraction,), size)

    def _extraction(self, stages: Path, downloads: Downloads, size: int) -> FolderStage:
        """Return the stage that downloads the archives and extracts the corpora."""
        members: dict[Archive, list[str]] = {}
        for corpus in self._corpora:
            for archive, path in corpus.sides(self.languages):
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

        settings = {archive.name: [archive.digest, *sorted(paths)] for archive, paths in members.items()}
        return FolderStage(stages / "extract", extract_all, settings, size=size, temporary=True)

    def _local_pairs(self, downloads: Downloads) -> dict[str, list[Path]]:
        """Return the local files, source and target, by the name of the English file."""
        folder = downloads.find(self.local) if self.local else None
        pairs = {}
        for english in sorted(folder.rglob("*_en.txt")) if folder else ():
            stem = english.name.removesuffix("_en.txt")
            chinese = next(filter(Path.exists, (english.with_name(f"{stem}_{end}.txt") for end in _CHINESE)), None)
            if chinese is None:
                raise UsageError(
                    f"{english} has no translation beside it ({stem}_ch.txt or {stem}_cn.txt). Complete it."
                )
            pairs[shown(english.relative_to(folder))] = [english, chinese]
        return pairs


def _flat(archive: Archive, member: str) -> str:
    """Return the name of the file that a member of an archive, or the archive itself, is extracted to."""
    return (member or archive.name).replace("/", "_")


def extract(archive: Path, members: Mapping[str, str], folder: Path, bar: Bar) -> None:
    """Extract members of a tar archive {end of the path in it: name of the file to write} into a folder.

    The archive is the one that is expected: its hash has been checked.
    """
    missing = dict(members)
    with open_binary(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        for entry in tar:
            for member in [name for name in missing if f"/{entry.name}".endswith(f"/{name}")]:
                source = cast(IO[bytes], tar.extractfile(entry))
                with open(folder / missing.pop(member), "wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
                bar.advance(entry.size)
            if not missing:
                break
    assert not missing, missing
