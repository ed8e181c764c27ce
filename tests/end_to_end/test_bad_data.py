"""Data on which fairseq fails: one sentence and exit code 2."""

import re

import pytest

from support.commands import fairseq_fails, run_program, train_arguments

pytestmark = pytest.mark.thorough  # 8 s


def test_sides_of_unequal_length(monkeypatch, tmp_path):
    (tmp_path / "text.xx").write_text("a1 a2\na3\n")
    (tmp_path / "text.yy").write_text("b1\n")
    arguments = f"-s xx -t yy --trainpref {tmp_path}/text --destdir {tmp_path}/data --joined-dictionary --workers 1"
    run_program(monkeypatch, "fairseq-preprocess", *arguments.split())
    said = fairseq_fails("train", *train_arguments(tmp_path / "data", tmp_path / "run", "--disable-validation"))
    assert "the two sides of the binarized data have different numbers of sentences" in said


def test_source_over_the_limit(data, tmp_path):
    short = "--max-update 1 --max-source-positions 4".split()
    said = fairseq_fails("train", *train_arguments(data, tmp_path / "run", *short))
    assert re.search(r"sentence \d+ \(counted from 0\) has \(\d+, \d+\) tokens, the limit is \(4, 32\)", said)
    assert "--skip-invalid-size-inputs-valid-test" in said
