"""Files out of archives that may be damaged or made to do harm."""

import bz2
import gzip
import io
import lzma
import tarfile

import pytest

from posnet_data_prep.sources import published as extraction
from posnet_data_prep.sources.published import extract
from posnet_fairseq.shared.errors import UsageError
from support import archives


class Bar:
    def advance(self, count):
        pass


def run(tmp_path, data, *members):
    archive, folder = tmp_path / "a.tar", tmp_path / "out"
    archive.write_bytes(data)
    folder.mkdir(exist_ok=True)
    extract(archive, {member: member.replace("/", "_") for member in members}, folder, Bar())
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("prefix", ["", "./", "2014-01/texts/"])
def test_members_are_found_in_every_compression_and_below_more_folders(tmp_path, compress, prefix):
    data = compress(archives.tar({f"{prefix}a/b.de": b"x", f"{prefix}a/b.en": b"y", f"{prefix}c/a_b.de": b"z"}, "w"))
    assert run(tmp_path, data, "a/b.de", "a/b.en") == {"a_b.de": b"x", "a_b.en": b"y"}


def crafted(name, **attributes):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        for attribute, value in attributes.items():
            setattr(entry, attribute, value)
        archive.addfile(entry, io.BytesIO(b"x" * entry.size))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (crafted("a", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "its member a is no plain file"),
        (crafted("a", type=tarfile.LNKTYPE, linkname="/etc/passwd"), "its member a is no plain file"),
        (crafted("a", type=tarfile.CHRTYPE), "its member a is no plain file"),
    ],
)
def test_harmful_archives_are_refused(tmp_path, data, said):
    with pytest.raises(UsageError, match=f"refused: {said}.*Do not use this file"):
        run(tmp_path, data, "a")
    assert not any((tmp_path / "out").iterdir())


@pytest.mark.parametrize("name", ["../../etc/a", "/etc/a"])
def test_a_path_that_leads_out_of_the_folder_is_not_followed(tmp_path, name):
    assert run(tmp_path, crafted(name, size=1), "a") == {"a": b"x"}


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(extraction, "SMALL", 1000)
    data = gzip.compress(archives.tar({"a": b"\0" * 10**7}, "w"))
    with pytest.raises(UsageError, match=r"it would expand to more than [0-9,]+ bytes"):
        run(tmp_path, data, "a")


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.99])
def test_a_truncated_archive_is_refused(tmp_path, keep):
    import random

    data = archives.tar({"a": random.Random(1).randbytes(100_000), "b": random.Random(2).randbytes(100_000)})
    with pytest.raises(UsageError, match=r"a.tar is damaged or no archive .*Remove it and run again"):
        run(tmp_path, data[: int(keep * len(data))], "a", "b")


@pytest.mark.parametrize(
    "data", [b"", b"<!DOCTYPE html>", b"plain text " * 100, gzip.compress(b"no tar" * 500, mtime=0)]
)
def test_what_is_no_archive_is_refused(tmp_path, data):
    with pytest.raises(UsageError, match="is damaged or no archive"):
        run(tmp_path, data, "a")


def test_a_missing_member_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"has no train\.de and no train\.en\. It is not the archive"):
        run(tmp_path, archives.tar({"a": b""}), "train.de", "train.en")
