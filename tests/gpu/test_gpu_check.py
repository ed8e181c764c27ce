"""bash recipes/gpu_check.sh: its sections, what is kept of them, and the report."""

import json

import pytest
import torch

from posnet_fairseq.bench import gpu_check
from support.commands import ROOT, fails

Section, sections = gpu_check.Section, gpu_check.sections
GOOD = Section("what passes", ("echo passes", "echo once >> ran"), 60)


def run(monkeypatch, folder, *made, again=False):
    """The exit code of a check of these sections, and its report."""
    monkeypatch.setattr(gpu_check, "sections", lambda gpus, bf16, scratch: made)
    monkeypatch.setattr(gpu_check.os, "environ", dict(gpu_check.os.environ))
    monkeypatch.chdir(folder)
    code = 0
    try:
        gpu_check.main(["--simulated", "--out", "out", *["--again"] * again])
    except SystemExit as end:
        code = end.code
    return code, (folder / "out" / "report.md").read_text()


def test_a_section_that_fails_stops_no_other(tmp_path, monkeypatch):
    bad = Section("what fails", ("echo told why; false", "echo never"), 60)
    slow = Section("what takes too long", ("sleep 600",), 1)
    out = Section("what cannot run", ("false",), 60, "there is one GPU")
    code, report = run(monkeypatch, tmp_path, bad, slow, out, GOOD)
    assert code == 1
    assert "| what fails | failed |" in report
    assert "told why" in report
    assert "never" not in report
    assert "ended after 1 seconds" in report
    assert "| what cannot run | left out |" in report
    assert "| what passes | passed |" in report
    assert json.loads((tmp_path / "out" / "what_fails.json").read_text())["finished"] is False


def test_sections_that_have_passed_run_no_more_unless_asked_to(tmp_path, monkeypatch):
    mended = tmp_path / "mended"
    other = Section("other", (f"[ -e {mended} ]",), 60)
    assert run(monkeypatch, tmp_path, GOOD, other)[0] == 1
    mended.touch()
    assert run(monkeypatch, tmp_path, GOOD, other)[0] == 0
    assert (tmp_path / "ran").read_text() == "once\n"
    run(monkeypatch, tmp_path, GOOD, other, again=True)
    assert (tmp_path / "ran").read_text() == "once\nonce\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_a_sentence_says_what_to_do(capsys):
    assert "give --simulated" in fails(capsys, gpu_check.main)


@pytest.mark.parametrize(
    ("machine", "left_out"),
    [
        ((2, True), set()),
        ((1, False), {"training in bf16, processes: 1", "training in fp16, processes: 2"}),
        ((0, True), set()),
    ],
)
def test_what_a_machine_cannot_do_is_left_out(tmp_path, machine, left_out):
    made = list(sections(*machine, tmp_path))
    assert {each.name for each in made if each.left_out} == left_out
    assert len({each.name for each in made}) == len(made)


@pytest.mark.slow
def test_it_runs_to_its_end_on_the_simulated_device(tmp_path, monkeypatch):
    made = [each._replace(seconds=3600) for each in sections(0, True, tmp_path / "out" / "scratch")]
    code, report = run(monkeypatch, tmp_path, *made)
    assert code == 0, report
    assert "no figure here is one of a GPU" in report
    assert (ROOT / "recipes" / "gpu_check.sh").is_file()
