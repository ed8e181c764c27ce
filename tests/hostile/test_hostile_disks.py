"""Outputs of all commands on disks that are full, read-only or taken away."""

import contextlib
import resource
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


@pytest.mark.parametrize(
    ("output", "happens", "sentence"),
    [
        ("full", lambda folder, _: node(folder / "full", 7), "cannot write full: the disk is full"),
        ("gone/new", folder_goes, "the folder gone is not there"),
    ],
)
def test_translations_are_kept(folder, monkeypatch, capfd, output, happens, sentence):
    translated(folder, monkeypatch, "--output", "expected")
    happens(folder, monkeypatch)
    with pytest.raises(SystemExit) as exit:
        translated(folder, monkeypatch, "--output", output)
    assert exit.value.code == 2
    said = capfd.readouterr().err
    assert sentence in said
    assert lines_kept(said) == Path("expected").read_text().splitlines()


def test_translations_are_kept_when_standard_output_is_full(folder, monkeypatch, capfd):
    translated(folder, monkeypatch, "--output", "expected")
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as exit:
            translated(folder, monkeypatch)
        monkeypatch.undo()
    assert exit.value.code == 2
    assert lines_kept(capfd.readouterr().err) == (folder / "expected").read_text().splitlines()


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
    with disk(folder / "disk", "64k"):
        (folder / "disk/old").write_text("old")
        with open("disk/ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(4096))
        assert run(f"{command} disk/old", "", monkeypatch) == 2
        said = capfd.readouterr().err
        written = "disk/old.partial" if command.startswith(TRANSLATE) else "disk/old"
        assert f"cannot write {written}: the disk is full" in said
        assert "Traceback" not in said
        assert sorted(path.name for path in (folder / "disk").iterdir()) == ["ballast", "old"]
        assert (folder / "disk/old").read_text() == "old"
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


def test_a_limit_on_the_size_of_files(folder, monkeypatch, capfd):
    """Writing a checkpoint fails midway for another reason than a full disk."""
    monkeypatch.chdir(folder)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        code = run(f"{AVERAGE} new.pt", "", monkeypatch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (code, "cannot write new.pt: File too large" in capfd.readouterr().err) == (2, True)
    assert not list(folder.glob("*new.pt*"))
