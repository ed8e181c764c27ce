"""The folder of downloads: files that are complete and have the known content."""

import contextlib
import fcntl
import http.client
import json
from pathlib import Path
from urllib.parse import quote

import msgspec

from posnet_data_prep.sources.archives import APT, PACKAGE_INDEX, Archive
from posnet_data_prep.sources.transfer import RefusedError, download_index, download_wheel, fetch_parts, reason
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import DISK_FULL
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.progress import Bar, ProgressReporter
from posnet_fairseq.shared.records import digest
from posnet_fairseq.shared.schema import read_json

URL_STARTS = ("http://", "https://")  # of a mirror that is no folder
_URL_CHARACTERS = "%/:?=&[]@+,;~"  # all others are quoted


class Downloads:
    """A folder of downloaded files, which are taken from a mirror of the user, a folder or a URL, if there is one."""

    def __init__(self, folder: Path | str, mirror: str | None, report: ProgressReporter) -> None:
        self.folder = Path(folder)
        self._report = report
        self._url: str | None = None
        self._local: Path | None = None
        if mirror and mirror.startswith(URL_STARTS):
            self._url = quote(mirror.rstrip("/"), safe=_URL_CHARACTERS)
        elif mirror:
            self._local = Path(mirror)
            if not self._local.is_dir():
                raise UsageError(
                    f"--mirror {mirror}: there is no such folder. Give a folder, or a URL that begins with http:// or "
                    "https://."
                )

    def cached(self, archive: Archive) -> Path | None:
        """Return the path of a file that is here already and has the right size, or None."""
        path = self._find(archive)
        return path if path and archive.size in (None, path.stat().st_size) else None

    def missing_bytes(self, archive: Archive) -> int:
        """Return the number of bytes still to be downloaded; 0 if the file's size is unknown."""
        if archive.size is None or self.cached(archive):
            return 0
        part = self._part(archive)
        return max(0, archive.size - (part.stat().st_size if part.exists() else 0))

    def find(self, name: str) -> Path | None:
        """Return the path of a file or folder in the mirror's folder or among the downloads, or None."""
        folders = [folder for folder in (self._local, self.folder) if folder]
        return next((folder / name for folder in folders if (folder / name).exists()), None)

    def _find(self, archive: Archive) -> Path | None:
        """Return the path of a file in the mirror's folder or among the downloads, or None."""
        given = sorted(path for path in self._local.iterdir() if archive.is_named(path.name)) if self._local else []
        return next(filter(Path.exists, [*given, self.folder / archive.name]), None)

    def fetch(self, archive: Archive) -> Path:
        """Return the path of a file, whose content has been checked. It is downloaded if it is not here."""
        place = self.folder / archive.name
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place.with_name(f".{place.name}.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # other processes that need the file wait, and find it here
            return self._fetch(archive)

    def _fetch(self, archive: Archive) -> Path:
        path, problems = self._find(archive), []
        given = path is not None and path.parent == self._local
        if path and given and archive.digest is None:
            return path
        if path and (fault := self._fault(path, archive)):
            problems = [f"{path} has another content" if given else _set_aside(path, f"{path} {fault}")]
        elif path:
            return path
        name = Path(archive.name).name
        if self._local:
            also = ", under apt's name for it, compressed or not," if archive.urls == APT else ""
            what = "; ".join(problems if given else [f"{name} is not there", *problems])
            raise UsageError(
                f"--mirror {self._local}: {what}. Put the right {name}{also} into that folder, or leave out --mirror "
                "to download it."
            )
        way = "Run the command again to continue (what has been downloaded is kept)"
        path = self.folder / archive.name
        for mirror in [f"{self._url}/{quote(name)}"] if self._url else archive.urls:
            try:
                with self._report.stage(f"download {archive.name}", "bytes", archive.size) as bar:
                    self._download(archive, mirror, self._part(archive), bar)
            except (RefusedError, OSError, ValueError, http.client.HTTPException) as error:  # ValueError: no URL
                if isinstance(error, OSError) and (error.filename or error.errno in DISK_FULL):
                    raise  # the fault of this machine, not of the mirror
                problems.append(f"{mirror}: {reason(error)}")
                continue
            self._part(archive).replace(path)
            fault = self._fault(path, archive)
            if not fault:
                return path
            problems.append(_set_aside(path, f"{mirror} {fault}"))
            if archive.digest is None:
                way = f"Remove {self._note(archive)} and run the command again to take what is there now"
        raise UsageError(
            f"{archive.name} could not be downloaded: {'; '.join(problems)}. {way}, or put the file into a folder and "
            "give that with --mirror."
        )

    def _part(self, archive: Archive) -> Path:
        return self.folder / f"{archive.name}.part"

    def _note(self, archive: Archive) -> Path:
        return self.folder / f"{archive.name}.json"

    def _download(self, archive: Archive, mirror: str, part: Path, bar: Bar) -> None:
        """Download a file from one of its mirrors, or from that of the user, which has a URL."""
        if archive.urls == PACKAGE_INDEX and not self._url:
            download_wheel(archive, part)
        elif archive.urls == APT and not self._url:
            download_index(archive, part)
        else:
            fetch_parts(mirror.split(), part, archive.digest is not None, bar)
            found = part.stat().st_size
            if archive.size not in (None, found):
                part.unlink()
                raise RefusedError(f"it serves {found:,} bytes, {archive.size:,} are expected")

    def _fault(self, path: Path, archive: Archive) -> str:
        """Return "" for a file of the known content, or that of its first download; an unchanged one is read once."""
        seen = _Note()
        with contextlib.suppress(UsageError):  # there is no note, or it is damaged
            seen = read_json(self._note(archive), _Note)
        status = path.stat()
        look = [str(path), status.st_size, status.st_mtime_ns]
        is_whole = archive.size in (None, status.st_size)
        if is_whole and seen.look == look and archive.digest in (None, seen.digest):
            return ""
        algorithm, _, expected = (archive.digest or seen.digest).partition(":")
        with self._report.stage(f"check {archive.name}", "bytes") as bar:
            found = digest(path, algorithm)
            bar.advance(status.st_size)
        if is_whole and expected in ("", found):
            write_lines(self._note(archive), [json.dumps({"digest": f"{algorithm}:{found}", "look": look})])
            return ""
        wanted = f", expected {expected}{'' if archive.digest else ', as at first'}" if expected else ""
        return f"has another content ({algorithm} {found}{wanted})"


def _set_aside(path: Path, fault: str) -> str:
    """Rename a file of another content; return a clause that says so."""
    return f"{fault}, kept as {path.replace(path.with_name(f'{path.name}.wrong'))}"


class _Note(msgspec.Struct):
    """Hash of a file when it was checked, and its path, size and time of change."""

    digest: str = "sha256:"
    look: list[str | int] = []
