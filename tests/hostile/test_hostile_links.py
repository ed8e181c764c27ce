"""Outputs and odd names of all commands, links among them, and what a new file takes over from the old one."""

import os
import stat

import pytest

from posnet_fairseq.shared import files
from posnet_fairseq.shared.errors import UsageError
from support.bad_paths import RAW
from support.hostile import Row, play, table
from support.hostile_files import AVERAGE, PRECOMPUTE, SCORE, TRANSLATE, linked


def _socket(path):
    os.mknod(path, 0o666 | stat.S_IFSOCK)


LINKS = [
    Row(
        "a link to a link in another folder",
        f"{TRANSLATE} --output link",
        "12 sentences",
        0,
        lambda folder: [(folder / "text/next").symlink_to("new"), (folder / "link").symlink_to("text/next")],
        ("text/new",),
    ),
    Row("a folder that is a circle", f"{AVERAGE} a/b", "a/b: .*(Too many|no folder)", before=linked("a", "a")),
    # Names that are not UTF-8 or have two lines: test_hostile_paths.py.
    Row("a name in color", f"{PRECOMPUTE} '\x1b[31mno/x'", r"the folder \\x1b\[31mno is not there"),
    Row("a missing name that is not UTF-8", f"posnet-precompute {RAW} --out x", r"\\udcff\\udcfe: there is no such"),
    Row(
        "a system whose name is not UTF-8",
        f"{SCORE.replace('a=text/test.xx', RAW)} --skip-missing",
        "no system has an output",
    ),
    Row("a data directory that is not UTF-8", f"posnet-length-ratio {RAW}", "there is no such directory"),
    Row("a socket", f"{AVERAGE} socket", "is a disk or a socket", before=lambda folder: _socket(folder / "socket")),
]


@table(LINKS)
def test_row(row, folder, monkeypatch, capfd):
    play(row, folder, monkeypatch, capfd)


def test_permissions_of_an_old_file_stay(tmp_path):
    for mode in (0o600, 0o640, 0o777):
        (tmp_path / "old").write_text("old")
        (tmp_path / "old").chmod(mode)
        files.write_lines(tmp_path / "old", ["new"])
        assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == mode
    mask = os.umask(0o027)
    try:
        files.write_lines(tmp_path / "new", ["new"])
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_another_name_of_an_old_file_keeps_it(tmp_path):
    (tmp_path / "old").write_text("old\n")
    os.link(tmp_path / "old", tmp_path / "other")
    files.write_lines(tmp_path / "old", ["new"])
    assert (tmp_path / "other").read_text() == "old\n"


def test_write_protected(tmp_path):
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o444)
    with pytest.raises(UsageError, match="old is write-protected"):
        files.check_place(tmp_path / "old", "--out")


def test_the_file_of_another_user_is_replaced_where_the_folder_allows_it(tmp_path, monkeypatch):
    (tmp_path / "old").write_text("old\n")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may do everything
    files.check_place(tmp_path / "old", "--out")
    files.write_lines(tmp_path / "old", ["new"])
    assert (tmp_path / "old").read_text() == "new\n"
