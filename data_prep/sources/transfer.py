"""Transfer of single files: over HTTP, resumed where a connection broke, from the Python package index, and by apt.

Of apt nothing on this machine is changed: it works in folders of its own.
"""

import http.client
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import BinaryIO

from posnet_data_prep.sources.archives import Archive
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import Bar

CHUNK = 1 << 20  # bytes
TRIES = 5  # attempts in a row that bring no byte, before a mirror is given up
TIMEOUT = 60.0  # seconds without a byte
RANGE_NOT_SATISFIABLE = 416
# apt's own program that decompresses whatever apt has compressed
HELPER = Path("/usr/lib/apt/apt-helper")
_LZ4 = b"\x04\x22\x4d\x18"
_CONTENT_CHECKSUM = 4  # a flag of the byte after that


class RefusedError(Exception):
    """A mirror does not serve a file; the text says why."""


def fetch_parts(urls: Sequence[str], path: Path, may_resume: bool, bar: Bar) -> None:
    """Download a file that is served in parts, and append what is missing to the bytes that are there.

    Bytes of an earlier attempt are kept if the content will be checked.
    """
    sizes = [_size(url) for url in urls[:-1]]  # they tell where the next part begins
    if not may_resume:
        path.unlink(missing_ok=True)
    starts = list(accumulate(sizes, initial=0))
    with open(path, "ab") as file:
        bar.go_on_from(file.tell())
        for url, start, end in zip(urls, starts, chain(starts[1:], [None]), strict=True):
            _fetch_part(url, file, start, end, bar)


def _fetch_part(url: str, file: BinaryIO, start: int, end: int | None, bar: Bar) -> None:
    """Append a part, from offset ``start`` to ``end``, in several attempts where the connection breaks."""
    first, tries = file.tell(), 0
    while end is None or file.tell() < end:
        before = file.tell()
        try:
            _append(url, file, before - start, bar)
            if end is None:
                return
            if file.tell() == before:
                raise ConnectionError("it sends nothing")
        except (TimeoutError, http.client.HTTPException, ConnectionError, urllib.error.URLError) as error:
            file.flush()
            unreachable = isinstance(error, urllib.error.URLError) and file.tell() == first
            if unreachable or isinstance(error, http.client.InvalidURL):
                raise  # there is no network, or no such server; one that served bytes is waited for
            tries = tries + 1 if file.tell() == before else 0
            if tries == TRIES:
                raise RefusedError(reason(error)) from error
            time.sleep(2**tries)


def _size(url: str) -> int:
    """Return the size of a part in bytes, as the server tells it."""
    response = _open(url, method="HEAD")
    if response is not None:
        with response:
            if length := response.headers["Content-Length"]:
                return int(length)
    raise RefusedError("it does not tell the sizes of its parts")


def _open(url: str, method: str = "GET", headers: dict[str, str] | None = None) -> http.client.HTTPResponse | None:
    """Return the response to a request; None if the requested range begins at the end of the file."""
    try:
        request = urllib.request.Request(url, method=method, headers=headers or {})
        return urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == RANGE_NOT_SATISFIABLE:
            return None
        raise RefusedError(f"{error.code} {error.reason}") from error


def _append(url: str, file: BinaryIO, offset: int, bar: Bar) -> None:
    """Append the bytes of a URL, from an offset on, to a file."""
    response = _open(url, headers={"Range": f"bytes={offset}-"} if offset else None)
    if response is None:
        return
    with response:
        if "text/html" in response.headers.get("Content-Type", ""):
            raise RefusedError("it serves a web page, not the file")
        if offset and response.status != http.HTTPStatus.PARTIAL_CONTENT:  # it sends the whole part
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


def download_wheel(wheel: Archive, path: Path) -> None:
    """Download a wheel with pip."""
    folder = path.with_suffix(".pip")
    shutil.rmtree(folder, ignore_errors=True)  # left by an interrupted run
    try:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary=:all:", "--ignore-requires-python", "--dest", str(folder)]
        done = subprocess.run([*command, "==".join(wheel.name.split("-")[:2])], capture_output=True, text=True)
        files = list(folder.glob("*.whl"))
        if done.returncode or not files:
            raise RefusedError((done.stderr.strip().splitlines() or ["pip gave no reason"])[-1])
        files[0].replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def download_index(index: Archive, path: Path) -> None:
    """Download an index with ``apt-get update``, from the Debian mirror that this machine's apt uses.

    apt's folder beside the file is kept until the index is whole: an interrupted download continues.
    """
    if shutil.which("apt-get") is None:
        raise RefusedError("this machine has no apt-get")
    _, suite, component, _, ending = index.name.split("_", 4)
    language = ending.removeprefix("Translation-")
    addresses = _apt_get("indextargets", "--format", "$(REPO_URI)").split()
    mirror = next((address for address in addresses if address.rstrip("/").endswith("/debian")), None)
    if mirror is None:
        raise RefusedError("its sources have no mirror of Debian")
    folder = path.with_suffix(".apt").absolute()
    lists, sources = folder / "lists", folder / "sources.list"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    sources.write_text(f"deb {mirror} {suite} {component}\n", encoding="utf-8")
    options = {
        "Dir::State": folder,
        "Dir::State::lists": lists,
        "Dir::Cache": folder,
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "Acquire::Languages": language,
        "Acquire::GzipIndexes": "false",
        "Acquire::IndexTargets::deb::Packages::DefaultEnabled": "false",
        "APT::Sandbox::User": "",  # another user could not write here
        "APT::Update::Error-Mode": "any",
    }
    _apt_get("update", *(f"--option={name}={value}" for name, value in options.items()))
    found = next((file for file in lists.iterdir() if index.is_named(file.name)), None)
    if found is None:
        raise RefusedError(f"{suite} has no descriptions in the language {language}")
    found.replace(path)
    shutil.rmtree(folder)


def _apt_get(*arguments: str) -> str:
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["apt-get", *arguments], capture_output=True, text=True, env=environment)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        errors = [line[2:].strip() for line in lines if line.startswith(("E:", "W:"))]
        raise RefusedError((errors or lines or ["apt-get gave no reason"])[0].rstrip("."))
    return done.stdout


def decompress_lz4(path: Path, target: Path) -> Path:
    """Return a file, decompressed into another one if apt has compressed it by lz4, which Python cannot read."""
    with open(path, "rb") as file:
        start = file.read(len(_LZ4) + 1)
        if not start.startswith(_LZ4):
            return path
        file.seek(max(0, path.stat().st_size - 8))
        end = file.read()
    # apt does not notice that a frame is cut short: its end is four zeros, and a checksum if there is one.
    whole = (end[:4] if start[-1] & _CONTENT_CHECKSUM else end[4:]) == bytes(4)
    if whole and not HELPER.exists():
        raise UsageError(
            f"{path} is compressed by lz4, and this machine has no apt to read it. Decompress it with lz4 -d."
        )
    with open(target, "wb") as output:
        if not whole or subprocess.run([HELPER, "cat-file", path], stdout=output, stderr=subprocess.PIPE).returncode:
            raise UsageError(f"{path} is compressed by lz4, and damaged. Copy it again.")
    return target


def reason(error: BaseException) -> str:
    """Return a short text that says what went wrong."""
    cause = error.reason if isinstance(error, urllib.error.URLError) and error.reason else error
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
