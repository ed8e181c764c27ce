"""Downloads: resumed, checked, from the next mirror; every fault in one sentence."""

import hashlib
import json
import os
import random
import re
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from posnet_data_prep.sources import download, transfer
from posnet_data_prep.sources.archives import PACKAGE_INDEX, WHEELS, Archive
from posnet_data_prep.sources.download import Downloads
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain

CONTENT = random.Random(1).randbytes(300_000)
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(transfer.time, "sleep", lambda seconds: None)


@pytest.fixture
def archive(server):
    server.files["/a.tgz"] = CONTENT
    return Archive("a.tgz", (f"{server.url}/a.tgz",), len(CONTENT), DIGEST)


@pytest.fixture
def downloads(tmp_path, report):
    return Downloads(tmp_path / "downloads", None, report)


def gets(server):
    return [(path, asked) for method, path, asked in server.requests if method == "GET"]


def test_a_connection_that_breaks_half_way_goes_on_there(server, archive, downloads):
    server.cut["/a.tgz"] = len(CONTENT) // 2
    assert downloads.fetch(archive).read_bytes() == CONTENT
    assert gets(server) == [("/a.tgz", None), ("/a.tgz", f"bytes={len(CONTENT) // 2}-")]


@pytest.mark.parametrize(
    ("part", "digest", "ranges", "asked"),
    [
        (CONTENT[:1000], DIGEST, True, "bytes=1000-"),
        (CONTENT, DIGEST, True, "bytes=300000-"),
        (b"x" * 1000, DIGEST, False, "bytes=1000-"),
        (b"of another file", None, True, None),
    ],
    ids=["interrupted", "ended", "a server without ranges", "no known hash"],
)
def test_what_an_interrupted_run_left_is_used(server, archive, downloads, part, digest, ranges, asked):
    server.ranges = ranges
    downloads.folder.mkdir()
    (downloads.folder / "a.tgz.part").write_bytes(part)
    assert downloads.fetch(Archive("a.tgz", archive.urls, len(CONTENT), digest)).read_bytes() == CONTENT
    assert gets(server) == [("/a.tgz", asked)]
    assert not (downloads.folder / "a.tgz.part").exists()


@pytest.mark.parametrize(
    ("cut", "asked"),
    [
        (None, [("/a.00", None), ("/a.01", None)]),
        (50_000, [("/a.00", "bytes=50000-"), ("/a.01", None)]),
        (120_000, [("/a.01", "bytes=20000-")]),
    ],
)
def test_a_file_in_parts_is_joined_and_resumed(server, downloads, cut, asked):
    server.files |= {"/a.00": CONTENT[:100_000], "/a.01": CONTENT[100_000:]}
    archive = Archive("a", (f"{server.url}/a.00 {server.url}/a.01",), len(CONTENT), DIGEST)
    if cut:
        downloads.folder.mkdir()
        (downloads.folder / "a.part").write_bytes(CONTENT[:cut])
    assert downloads.fetch(archive).read_bytes() == CONTENT
    assert gets(server) == asked


def test_what_is_here_is_not_asked_for_again_and_read_once(server, archive, downloads, monkeypatch):
    downloads.fetch(archive)
    server.requests.clear()
    monkeypatch.setattr(download, "digest", None)
    assert downloads.fetch(archive).read_bytes() == CONTENT
    assert not server.requests


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            b"y" * len(CONTENT),
            "has another content (sha256 {found}, expected {expected}), kept as {folder}/a.tgz.wrong",
        ),
        (CONTENT[:-1], "it serves 299,999 bytes, 300,000 are expected"),
        (None, "404 Not Found"),
        ("page", "it serves a web page, not the file"),
    ],
)
def test_a_bad_mirror_is_named_and_the_next_one_asked(server, archive, downloads, wrong, said):
    if wrong == "page":
        server.pages.add("/bad/a.tgz")
    elif wrong is not None:
        server.files["/bad/a.tgz"] = wrong
    bad = f"{server.url}/bad/a.tgz"
    only = Archive("a.tgz", (bad,), archive.size, DIGEST)
    with pytest.raises(UsageError) as error:
        downloads.fetch(only)
    sentence = str(error.value)
    found = hashlib.sha256(wrong).hexdigest() if isinstance(wrong, bytes) else ""
    expected = said.format(found=found, expected=DIGEST[7:], folder=downloads.folder)
    assert f"a.tgz could not be downloaded: {bad}" in sentence
    assert expected in sentence
    assert "--mirror" in sentence
    assert not (downloads.folder / "a.tgz").exists()
    both = Archive("a.tgz", (bad, *archive.urls), archive.size, DIGEST)
    assert downloads.fetch(both).read_bytes() == CONTENT


def test_two_who_need_the_same_wait_for_each_other(server, archive, tmp_path, report):
    def fetch(_):
        return Downloads(tmp_path / "downloads", None, report).fetch(archive).read_bytes()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(fetch, range(4))) == [CONTENT] * 4
    assert len(gets(server)) == 1


def test_a_damaged_note_is_no_harm(archive, downloads):
    downloads.fetch(archive)
    for note in ("{", "[]", "{}"):
        (downloads.folder / "a.tgz.json").write_text(note)
        assert downloads.fetch(archive).read_bytes() == CONTENT


def test_a_network_that_is_gone_for_a_moment_is_waited_for(server, archive, downloads, monkeypatch):
    server.cut["/a.tgz"] = 100_000
    asked, urlopen = [], urllib.request.urlopen

    def failing(request, **settings):
        asked.append(request)
        if len(asked) == 2:
            raise urllib.error.URLError("Network is unreachable")
        return urlopen(request, **settings)

    monkeypatch.setattr(urllib.request, "urlopen", failing)
    assert downloads.fetch(archive).read_bytes() == CONTENT
    assert len(asked) == 3


def test_a_connection_that_always_breaks_is_given_up(server, archive, downloads):
    class Always(dict):
        def pop(self, path, default):
            return 0

    server.cut = Always()
    with pytest.raises(UsageError, match="the connection broke off"):
        downloads.fetch(archive)
    assert len(gets(server)) == transfer.TRIES


def test_a_damaged_file_among_the_downloads_is_set_aside(server, archive, downloads):
    downloads.folder.mkdir()
    (downloads.folder / "a.tgz").write_bytes(b"z" * len(CONTENT))
    assert downloads.fetch(archive).read_bytes() == CONTENT
    assert (downloads.folder / "a.tgz.wrong").read_bytes() == b"z" * len(CONTENT)


def test_without_a_known_hash_the_first_content_is_the_right_one(server, downloads):
    server.files["/new.tgz"] = b"first"
    archive = Archive("new.tgz", (f"{server.url}/new.tgz",))
    path = downloads.fetch(archive)
    noted = json.loads((downloads.folder / "new.tgz.json").read_text())["digest"]
    assert noted == "sha256:" + hashlib.sha256(b"first").hexdigest()
    path.unlink()
    server.files["/new.tgz"] = b"other"
    expected = f"expected {hashlib.sha256(b'first').hexdigest()}, as at first"
    with pytest.raises(
        UsageError, match=rf"has another content .*{expected}.* Remove (\S*/new\.tgz\.json) and run"
    ) as raised:
        downloads.fetch(archive)
    Path(re.search(r"Remove (\S*) and run", str(raised.value))[1]).unlink()
    assert downloads.fetch(archive).read_bytes() == b"other", "the way that the message says"


@pytest.mark.parametrize("kind", ["folder", "url"])
def test_a_mirror_serves_everything_and_nobody_else_is_asked(server, archive, tmp_path, report, kind):
    server.files["/mirror/a.tgz"] = CONTENT
    server.files["/mirror/" + WHEELS[0].name] = CONTENT
    local = tmp_path / "mirror"
    local.mkdir()
    for name in ("a.tgz", WHEELS[0].name):
        (local / name).write_bytes(CONTENT)
    downloads = Downloads(tmp_path / "downloads", str(local) if kind == "folder" else f"{server.url}/mirror/", report)
    wheel = Archive(WHEELS[0].name, PACKAGE_INDEX, len(CONTENT), DIGEST)
    for item in (archive, wheel):
        assert downloads.fetch(item).read_bytes() == CONTENT
    assert all(path.startswith("/mirror/") for _, path, _ in server.requests)
    assert bool(server.requests) == (kind == "url")


def test_bad_mirrors(archive, tmp_path, report):
    for url in ("ftp://host/x", "file:///x", "nowhere"):
        with pytest.raises(UsageError, match=r"Give a folder, or a URL that begins with http:// or https://"):
            Downloads(tmp_path / "downloads", url, report)
    for url in ("http://[::1", "http://127.0.0.1:9/ä b", "http://127.0.0.1:x/"):
        with pytest.raises(UsageError, match=r"a.tgz could not be downloaded: http://"):
            Downloads(tmp_path / "downloads", url, report).fetch(archive)
    with pytest.raises(UsageError, match=r"--mirror .*: a.tgz is not there\. Put the right a.tgz into that folder"):
        Downloads(tmp_path / "downloads", str(tmp_path), report).fetch(archive)
    (tmp_path / "a.tgz").write_bytes(b"w" * len(CONTENT))
    with pytest.raises(
        UsageError, match=r"--mirror .*/a.tgz has another content\. Put the right a.tgz into that folder"
    ):
        Downloads(tmp_path / "downloads", str(tmp_path), report).fetch(archive)
    assert (tmp_path / "a.tgz").exists(), "what is not ours is left alone"


def test_a_full_disk_is_no_fault_of_the_mirror(archive, downloads, monkeypatch):
    def full(*arguments):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(transfer, "_append", full)
    with pytest.raises(OSError, match="No space") as error:
        downloads.fetch(archive)
    assert explain(error.value) == "the disk is full. Make room, and run it again."
