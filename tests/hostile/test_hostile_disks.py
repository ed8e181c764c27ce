"""Outputs of all commands on disks that are full, read-only or taken away."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from posnet_fairseq.inference import translating
from posnet_fairseq.shared import files
from posnet_fairseq.shared.errors import UsageError
from support.bad_paths import node
from support.hostile import run
from support.hostile_files import AVERAGE, CORPUS, PRECOMPUTE, SCORE, TRANSLATE, lines_kept, translated


@contextlib.contextmanager
def disk(place, size):
    """Mount a small disk, or skip the test if mounting is not allowed."""
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def folder_goes(folder, monkeypatch):
    """The disk is removed while the command runs."""
    (folder / "gone").mkdir()

    def in_order(*arguments):
        yield from original(*arguments)
        shutil.rmtree(folder / "gone")

    original = translating.in_order
    monkeypatch.setattr(translating, "in_order", in_order)


def full_stdout(folder, monkeypatch):
    monkeypatch.setattr(sys, "stdout", os.fdopen(os.open("/dev/full", os.O_WRONLY), "w"))


@pytest.mark.parametrize(
    ("output", "happens", "sentence"),
    [
        ("full", lambda folder, _: node(folder / "full", 7), "cannot write full: the disk is full"),
        ("-", full_stdout, "the disk is full"),
        ("gone/new", folder_goes, "the folder gone is not there"),
    ],
)
def test_translations_are_kept(folder, monkeypatch, capfd, output, happens, sentence):
    translated(folder, monkeypatch, "--output", "expected")
    with monkeypatch.context() as patch:
        happens(folder, patch)
        with pytest.raises(SystemExit) as exit:
            translated(folder, monkeypatch, "--output", output)
    assert exit.value.code == 2
    said = capfd.readouterr().err
    assert sentence in said
    assert lines_kept(said) == Path("expected").read_text().splitlines()


def test_translations_are_printed_when_nothing_can_be_written(tmp_path, monkeypatch, capfd):
    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.tempfile, "mkdtemp", fails)
    monkeypatch.setattr(files.tempfile, "mkstemp", fails)
    with pytest.raises(UsageError, match="on standard output instead"):
        files.save_lines(tmp_path / "file", ["a", "b"])
    assert capfd.readouterr().out == "a\nb\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [AVERAGE, PRECOMPUTE, f"{TRANSLATE} --output"])
def test_a_full_disk(folder, monkeypatch, capfd, command):
    monkeypatch.chdir(folder)
    with disk(folder / "disk", "2m"):
        old = Path(shutil.copy("model.pt", "disk/old"))  # all three may replace what posnet-average made
        with open("disk/ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(4096))
        assert run(f"{command} disk/old", "", monkeypatch) == 2
        said = capfd.readouterr().err
        written = "disk/old.partial" if command.startswith(TRANSLATE) else "disk/old"
        assert f"cannot write {written}: the disk is full" in said
        assert "Traceback" not in said
        assert sorted(path.name for path in (folder / "disk").iterdir()) == ["ballast", "old"]
        assert old.read_bytes() == Path("model.pt").read_bytes()
        if command.startswith(TRANSLATE):
            assert len(lines_kept(said)) == 12


def test_a_read_only_disk(folder, monkeypatch, capfd):
    """The command fails before it computes anything."""

    def work(*_, **__):
        raise AssertionError("something was done first")

    for place in (
        *("posnet_fairseq.inference.averaging.average", "posnet_fairseq.inference.precomputing.precompute"),
        *("posnet_fairseq.inference.translating.SearchableModel", "posnet_eval.score.compare"),
        "posnet_data_prep.command_line.preparation",
    ):
        monkeypatch.setattr(place, work)
    monkeypatch.chdir(folder)
    with disk(folder / "disk", "64k"):
        subprocess.run(["mount", "-o", "remount,ro", folder / "disk"], check=True)
        outputs = (f"{TRANSLATE} --output disk/x", f"{SCORE} --out disk/x", f"{CORPUS} --out disk/x")
        for command in (f"{AVERAGE} disk/x", f"{PRECOMPUTE} disk/x", *outputs):
            assert run(command, "", monkeypatch) == 2, command
            assert "Read-only file system" in capfd.readouterr().err, command
