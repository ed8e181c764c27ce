"""tests/first_hour.sh, and what it compares with README.md."""

import re
import shutil
import subprocess

import pytest

from support import first_hour
from support.commands import ROOT


@pytest.mark.slow
def test_readme_in_a_fresh_environment(tmp_path):
    folder = tmp_path / "first hour"
    done = subprocess.run(
        ["bash", str(ROOT / "tests" / "first_hour.sh"), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
    )
    shutil.rmtree(folder, ignore_errors=True)  # an environment of its own
    assert done.returncode == 0, done.stdout[-5000:]


def test_what_readme_shows_and_no_command_prints_is_found(tmp_path, monkeypatch):
    readme = tmp_path / "README.md"
    readme.write_text("```bash\nposnet-score a b\n```\n\n```\nBLEU  chrF\n21.8  48.5 ±1.3 †↑\n\nfoot\n```\n")
    monkeypatch.setattr(first_hour, "README", readme)
    printed = tmp_path / "output.2"
    printed.write_text("BLEU       chrF\n5.0   7 ±1,000.5\nmore\nfoot\n")
    assert not list(first_hour.differences(tmp_path))
    printed.write_text("        chrF\nBLEU       *\n5.0   7 ±1\nfoot\n")  # of a busy machine
    assert not list(first_hour.differences(tmp_path))
    for text in ("chrF  BLEU\n5 7 ±1\nfoot\n", "BLEU chrF\nfoot\n5 7 ±1\n", "BLEU chrF\n5 7 ±1\n"):
        printed.write_text(text)
        assert len(list(first_hour.differences(tmp_path))) == 1


def test_what_is_changed_or_left_out_is_in_readme():
    texts = [text for _, text in first_hour.statements()]
    for patterns in (first_hour.LEFT_OUT, first_hour.BEHIND):
        for pattern in patterns:
            assert any(first_hour.matching({pattern: ""}, text) for text in texts), pattern


def test_no_command_trains_for_hours():
    for _, text in first_hour.statements():
        if re.match(r"fairseq-train|posnet-run|bash recipes/", text):
            assert first_hour.matching(first_hour.BEHIND, text), text
