"""Bars: what is done, how fast, and the time left."""

import os
import pty
import subprocess
import sys

import pytest

from posnet_fairseq.shared import progress
from posnet_fairseq.shared.progress import ProgressReporter


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    return now


def test_time_left_however_slow(clock):
    with ProgressReporter(quiet=True).bar("train", "updates", 1000) as bar:
        assert bar.time_left == ""
        clock[0] += 400
        bar.move_to(3)
        assert bar.time_left == "1 day, 12:55:34 left"
        bar.move_to(10)
        assert bar.time_left == "11:00:00 left"
        bar.move_to(1000)
        assert bar.time_left == ""


def test_time_left_is_that_of_this_run_and_seconds_are_those_of_all(clock, capsys):
    with ProgressReporter().stage("train", "updates", 300) as bar:
        bar.go_on_from(100, seconds=50)
        clock[0] += 10
        bar.move_to(110)
        assert bar.time_left == "0:03:10 left"
        clock[0] += 190
        bar.move_to(300)
    assert "250.0 s, 300 updates, 1.2 updates/s" in capsys.readouterr().err


def test_no_time_is_left_of_an_unknown_total(clock):
    with ProgressReporter(quiet=True).bar("read") as bar:
        clock[0] += 1
        bar.move_to(5)
        assert bar.time_left == ""


def test_a_log_has_no_bars_whatever_the_colors(clock, capsys, monkeypatch):
    """Hosted CI and notebooks set FORCE_COLOR, which means colors and no terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with ProgressReporter().stage("train", "updates", 10) as bar:
        clock[0] += 10
        bar.move_to(10)
    assert capsys.readouterr().err == "train            10.0 s, 10 updates, 1 update/s\n"


def test_results_beside_a_bar_on_a_terminal_reach_their_file(tmp_path):
    """rich shows what is printed beside a bar above it, on the terminal."""
    program = """
from posnet_fairseq.shared.files import print_lines
from posnet_fairseq.shared.progress import ProgressReporter

with ProgressReporter().bar("translating") as bar:
    bar.move_to(1)
    print_lines(["a line"])
"""
    master, terminal = pty.openpty()
    with open(tmp_path / "out", "w") as out:
        environment = os.environ | {"TERM": "xterm"}
        subprocess.run([sys.executable, "-c", program], stdout=out, stderr=terminal, env=environment, check=True)
    os.set_blocking(master, False)
    shown = os.read(master, 2**16)
    os.close(terminal)
    os.close(master)
    assert b"translating" in shown
    assert (tmp_path / "out").read_text() == "a line\n"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("é γ", "é γ"),  # in any locale
        ("\udcce\udcb3", "γ"),  # UTF-8 in a locale that knows ASCII only
        ("caf\udce9 \udce8", r"caf\xe9 \xe8"),  # different names stay different
        ("\ud800", r"\ud800"),
    ],
)
def test_names_are_shown_as_they_are_or_in_another_form(given, expected):
    assert progress.shown(given) == expected
