"""docs/mixers-on-grids.md: its examples run, and its table has every mixer that has a form on grids."""

import ast
import re
import sys

import pytest

from posnet_fairseq.registry import mixer_names
from support import documents
from support.commands import ROOT

PAGE = (ROOT / "docs/mixers-on-grids.md").read_text()
FIRST, DIGITS = documents.python("docs/mixers-on-grids.md")


def test_the_first_example_mixes_an_image():
    names = {}
    exec(compile(FIRST, "grid.py", "exec"), names)
    assert names["y"].shape == (2, 197, 64)
    assert len(names["mixer"].on_values) == 50


def test_every_mixer_is_in_the_table():
    rows = "\n".join(re.findall(r"^\| (`.*?) \|", PAGE, re.M))
    assert sorted(set(re.findall(r"`([a-z_]+)`", rows))) == mixer_names(on_grids=True)


def accuracies(monkeypatch, capsys, mixer, **changes):
    """What the example prints for one seed and a mixer, with some words changed."""
    monkeypatch.setattr(sys, "argv", ["digits.py", mixer])
    code = DIGITS
    for given, changed in {"range(1, 6)": "range(1, 2)", **changes}.items():
        assert given in code
        code = code.replace(given, changed)
    exec(compile(code, "digits.py", "exec"), {"__name__": "digits"})
    (line,) = capsys.readouterr().out.splitlines()
    name, seed, found = line.split(maxsplit=2)
    assert (name, seed) == (mixer, "1")
    return ast.literal_eval(found)


@pytest.mark.parametrize("mixer", ["irpe", "attention", "rope", "alpha_translution", "translution"])
@pytest.mark.quick_cases(1)
def test_every_mixer_of_the_example_trains(monkeypatch, capsys, mixer):
    """For three updates."""
    fewer = {
        "epochs=10": "epochs=1",
        "torch.randperm(1297)": "torch.randperm(192)",
        "torch.randperm(len(labels)).split([1297, 500])": "torch.randperm(len(labels))[:256].split([192, 64])",
    }
    found = accuracies(monkeypatch, capsys, mixer, **fewer)
    assert len(found) == 3
    assert all(0 <= accuracy <= 100 for accuracy in found)


@pytest.mark.thorough  # 10 s
def test_digits_are_learned(monkeypatch, capsys):
    """In the middle, and by iRPE also where they move by whole patches; not where they move by pixels."""
    middle, by_patches, by_pixels = accuracies(monkeypatch, capsys, "irpe")
    assert middle > 90
    assert by_patches > 90
    assert by_pixels < 50
