import errno
import os
import stat
from pathlib import Path

import pytest
import torch

from posnet_fairseq.shared import files
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain
from posnet_fairseq.shared.files import check_place, read_lines, write_lines
from posnet_fairseq.shared.records import digest
from posnet_fairseq.text.plain import read_parallel


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"\xef\xbb\xbfa\r\nb\r\n", ["a", "b"]),
        ("a\u2028b\x0bc\x85d\re\n".encode(), ["a\u2028b\x0bc\x85d\re"]),
    ],
)
def test_only_line_feeds_end_lines(tmp_path, content, expected):
    (tmp_path / "file").write_bytes(content)
    assert read_lines(tmp_path / "file") == expected


@pytest.mark.parametrize(
    ("content", "where"), [(b"ok\nbad \xff", "line 2 .* offset 7"), (b"\xef\xbb\xbf\xff", "line 1 .* offset 3")]
)
def test_invalid_utf8_is_located(tmp_path, content, where):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UsageError, match=f"file is not UTF-8: {where}"):
        read_lines(tmp_path / "file")


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT])
def test_the_true_cause_is_named(tmp_path, monkeypatch, number):
    """A file that may not be read is there. (The superuser may read all.)"""

    def refuse(path, *_, **__):
        raise OSError(number, os.strerror(number), path)

    (tmp_path / "file").touch()
    monkeypatch.setattr(files, "open", refuse, raising=False)
    for read in (files.check_file, files.read_small):
        with pytest.raises(UsageError, match=f"file: {os.strerror(number)}. "):
            read(tmp_path / "file")


def test_parallel_files_have_equally_many_lines(tmp_path):
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("1\n")
    with pytest.raises(UsageError, match=r"a has 2 lines, .*b has 1 line"):
        read_parallel(tmp_path / "a", tmp_path / "b")


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    write_lines(tmp_path / "file", ["old"])

    def fail():
        yield "new"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_lines(tmp_path / "file", fail())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert read_lines(tmp_path / "file") == ["old"]


def test_a_file_that_cannot_be_read_on_is_named(tmp_path):
    """The system names no file when reading fails, as that of a process's memory does at its beginning."""
    (tmp_path / "record").symlink_to("/proc/self/mem")
    with pytest.raises(UsageError, match=r"record: Input/output error\. Check the disk, or copy the file again"):
        digest(tmp_path / "record")


@pytest.mark.parametrize("make", [lambda: torch.empty(2**60), lambda: bytearray(2**60)])
def test_too_little_memory_is_said(make):
    with pytest.raises((RuntimeError, MemoryError)) as error:
        make()
    assert explain(error.value) == "there is not enough memory for this. Give smaller sizes, lengths or batches."


def test_a_working_directory_that_was_removed_is_named(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError) as error:
        Path("x").absolute()
    assert explain(error.value) == "the working directory no longer exists. Change to another one."
    monkeypatch.chdir(tmp_path)
    assert explain(error.value) is None, "then it had another cause"


def test_errors_of_other_files_are_left_alone(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"), files.replacing(tmp_path / "file"):
        open(tmp_path / "none").close()
    assert not list(tmp_path.iterdir())


def test_no_descriptor_has_so_large_a_number():
    with pytest.raises(UsageError, match="/dev/fd/99999999999"):
        check_place("/dev/fd/99999999999")


def test_permissions_of_an_old_file_stay(tmp_path):
    for mode in (0o600, 0o640, 0o777):
        (tmp_path / "old").write_text("old")
        (tmp_path / "old").chmod(mode)
        write_lines(tmp_path / "old", ["new"])
        assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == mode
    mask = os.umask(0o027)
    try:
        write_lines(tmp_path / "new", ["new"])
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_another_name_of_an_old_file_keeps_it(tmp_path):
    (tmp_path / "old").write_text("old\n")
    os.link(tmp_path / "old", tmp_path / "other")
    write_lines(tmp_path / "old", ["new"])
    assert (tmp_path / "other").read_text() == "old\n"


def test_write_protected(tmp_path):
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o444)
    with pytest.raises(UsageError, match="old: it is write-protected"):
        files.check_place(tmp_path / "old", "--out")


def test_the_file_of_another_user_is_replaced_where_the_folder_allows_it(tmp_path, monkeypatch):
    (tmp_path / "old").write_text("old\n")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may do everything
    files.check_place(tmp_path / "old", "--out")
    write_lines(tmp_path / "old", ["new"])
    assert (tmp_path / "old").read_text() == "new\n"


def test_a_folder_that_is_a_link_to_nothing(tmp_path):
    """As of a disk that is not mounted."""
    link = tmp_path / "disk"
    link.symlink_to("/nowhere/disk")
    with pytest.raises(FileExistsError) as raised:
        link.mkdir(exist_ok=True)
    assert explain(raised.value).startswith(f"{link}: a link to /nowhere/disk, which is not there.")
