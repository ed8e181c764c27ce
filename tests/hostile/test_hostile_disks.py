"""Outputs of all commands on disks that are full, read-only or taken away."""

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest

from posnet_fairseq.shared import finished_windows
from posnet_fairseq.shared.errors import UsageError
from support.hostile import run
from support.hostile_files import AVERAGE, CORPUS, PRECOMPUTE, SCORE, TRANSLATE, node, translated


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


def test_a_stream_on_a_full_disk(folder, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    node(folder / "full", 7)
    assert run(f"{TRANSLATE} --output full", monkeypatch) == 2
    assert "cannot write full: the disk is full. Make room" in capfd.readouterr().err


def test_no_folder_for_temporary_files(folder, monkeypatch, capfd):
    """As when all disks are full or read-only."""

    def fails():
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp', '/here']")

    with monkeypatch.context() as patch:
        patch.setattr("tempfile.tempdir", None)
        patch.setattr("tempfile._get_default_tempdir", fails)
        patch.chdir(folder)
        assert run(f"{AVERAGE} /dev/stdout", patch) == 2
        translated(folder, patch, "--output", "new")  # needs none
    said = capfd.readouterr().err
    assert "no folder for temporary files can be written, of '/tmp', '/here'. Make room there, or give another" in said


def test_what_is_finished_stays_beside_the_output(folder, monkeypatch, capfd):
    """There is room for all translations, but not twice."""
    translated(folder, monkeypatch, "--output", "expected")
    with monkeypatch.context() as patch:
        patch.setattr(finished_windows, "write_lines", refused)
        assert run(f"{TRANSLATE} --output new", monkeypatch) == 2
    said = capfd.readouterr().err
    assert "the disk is full. All lines are in new.partial, from which the same command goes on." in said
    assert not Path("new").exists()
    translated(folder, monkeypatch, "--output", "new", "--resume")
    assert "12 lines were translated before" in capfd.readouterr().err
    assert Path("new").read_bytes() == Path("expected").read_bytes()


def refused(path, _):
    raise UsageError(f"cannot write {path}: the disk is full.")


@pytest.mark.parametrize("command", [AVERAGE, PRECOMPUTE, f"{TRANSLATE} --output"])
def test_a_full_disk(folder, monkeypatch, capfd, command):
    monkeypatch.chdir(folder)
    with disk(folder / "disk", "2m"):
        old = Path(shutil.copy("model.pt", "disk/old"))  # all three may replace what posnet-average made
        with open("disk/ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(4096))
        assert run(f"{command} disk/old", monkeypatch) == 2
        said = capfd.readouterr().err
        written = "disk/old.partial" if command.startswith(TRANSLATE) else "disk/old"
        assert f"cannot write {written}: the disk is full" in said
        assert "Traceback" not in said
        assert sorted(path.name for path in (folder / "disk").iterdir()) == ["ballast", "old"]
        assert old.read_bytes() == Path("model.pt").read_bytes()


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
            assert run(command, monkeypatch) == 2, command
            assert "Read-only file system" in capfd.readouterr().err, command


def test_an_export_that_does_not_fit_on_the_disk(folder, monkeypatch, capfd):
    """safetensors has an error of its own for weights that do not."""
    monkeypatch.chdir(folder)
    with disk(folder / "disk", "64k"):
        assert run("posnet-export model.pt --out disk/model", monkeypatch) == 2
        assert "cannot write disk/model: the disk is full. Make room, and run it again." in capfd.readouterr().err
        assert not list(Path("disk").iterdir())
