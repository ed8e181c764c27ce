"""Commands with outputs, and what rows of hostile use do with their files."""

import os
import stat

import pytest

from support import commands
from support.hostile import run

AVERAGE = "posnet-average run --num 1 --out"
PRECOMPUTE = "posnet-precompute model.pt --out"
TRANSLATE = "posnet-translate model.pt --beam 1 --max-len-b 2 --input text/test.xx"
SCORE = (
    "posnet-score --metrics bleu --resamples 40 --workers 1 --reference text/test.yy --system a=text/test.xx "
    "--cache scores.sqlite"
)
CORPUS = "posnet-prepare corpus --train text/train.xx text/train.yy --valid-every 9 -s xx -t yy --merges 5 --workers 1"
SCORES = ("scores.sqlite*",)
REPORT = ("report", "report/*", *SCORES)


def linked(name, target):
    """Make a symbolic link first."""
    return lambda folder: (folder / name).symlink_to(target)


def after(*commands_before, then=lambda folder: None):
    """Run commands in the row's folder first, then change the folder."""

    def do(folder):
        patch = pytest.MonkeyPatch()
        for command in commands_before:
            assert run(command, patch) == 0
        then(folder)

    return do


def translated(folder, monkeypatch, *more):
    """Translate the test set in a folder."""
    monkeypatch.chdir(folder)
    commands.run_program(monkeypatch, *TRANSLATE.split(), *more)


RAW = os.fsdecode(b"\xff\xfe")  # a name that is not UTF-8


def node(path, number):
    """Make a device: 3 is /dev/null, 7 is /dev/full."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, number))
        path.open("rb").close()
    except PermissionError:
        pytest.skip("devices cannot be made here")
