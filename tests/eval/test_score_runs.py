"""posnet-score interrupted, on full disks, twice at a time, without output; and its files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from posnet_eval import metrics
from posnet_eval.metrics.base import MeanMetric
from posnet_eval.report import publish
from posnet_eval.score import main
from posnet_fairseq.shared.files import SMALL
from posnet_fairseq.shared.processes import try_lock
from support.commands import modules_of
from support.scoring import COLUMNS, FILES, SIZE, USUAL, configure, refused, report, run, write


class Model(MeanMetric):
    """Gives each line its length, one after the other; some lines are its downfall."""

    name, label = "model", "Model"
    asked, odd = 0, np.nan

    def details(self):
        return {"version": "1"}

    def statistics(self, segments):
        for place, segment in enumerate(segments):
            type(self).asked += 1
            if segment.hypothesis == "Abbruch":
                raise KeyboardInterrupt
            yield [place], np.array([[self.odd if segment.hypothesis == "Unwort" else len(segment.hypothesis), 1.0]])


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setitem(metrics.METRICS, "model", "model.Model")
    monkeypatch.setitem(sys.modules, "posnet_eval.metrics.model", sys.modules[__name__])
    monkeypatch.setattr(Model, "asked", 0)
    monkeypatch.setattr(Model, "odd", np.nan)
    return Model


def replace_line(path, number, line):
    lines = Path(path).read_text().splitlines()
    write(Path(path), [*lines[: number - 1], line, *lines[number:]])


def test_scores_that_are_not_numbers(data, capsys, model):
    replace_line("good.txt", 5, "Unwort")
    said = refused(capsys, *USUAL, "--metrics", "model", "--out", "report")
    assert "Model of good on test is not a number in line 5 (such lines: 1)" in said
    assert not Path("report").exists()
    # what was a number is kept, what was not is asked for again
    assert "error: 1 of" in refused(capsys, *USUAL, "--metrics", "model", "--cached-only")
    model.odd = 7.0
    run(capsys, *USUAL, "--metrics", "model")
    run(capsys, *USUAL, "--metrics", "model", "--cached-only")


def test_what_an_interrupted_run_has_computed_is_kept(data, capsys, model):
    replace_line("good.txt", 30, "Abbruch")
    with pytest.raises(SystemExit) as exit:
        main([*USUAL, "--metrics", "model"])
    assert exit.value.code == 130
    before = model.asked
    replace_line("good.txt", 30, "weiter")
    run(capsys, *USUAL, "--metrics", "model", "--out", "report")
    lines = {line for name in ("base", "good", "other") for line in Path(f"{name}.txt").read_text().splitlines()}
    # but for the same line with another reference, each is asked for once, and the interrupted one twice
    assert SIZE < before < model.asked <= 3 * SIZE + 1
    assert model.asked >= len(lines)
    (test_set,) = report()["test_sets"]
    assert test_set["segments"]["model"]["good"][29] == len("weiter")


def test_a_segment_is_computed_once(data, capsys, model):
    """Of systems, runs and test sets that share it."""
    for name in ("same.txt", "same2.txt", "same3.txt"):
        write(data / name, ["gleich"] * SIZE)
    write(data / "same.de", ["Bezug"] * SIZE)
    run(capsys, "--reference", "same.de", "--system", "a=same.txt", "b=same2.txt,same3.txt", "--metrics", "model")
    assert model.asked == 1


def test_a_report_is_whole_or_the_old_one(data, capsys, monkeypatch):
    run(capsys, *USUAL, "--out", "report")
    before = {path.name: path.read_bytes() for path in Path("report").iterdir()}

    def fails(comparison):
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(publish.FILES, "report.json", fails)
    assert "the disk is full" in refused_after_showing(capsys, *USUAL, "--resamples", "100", "--out", "report")
    assert {path.name: path.read_bytes() for path in Path("report").iterdir()} == before


def test_a_report_that_was_stopped_between_its_files_is_made_again(data, capsys, monkeypatch):
    run(capsys, *USUAL, "--out", "report")
    replace = Path.replace

    def killed(path, target):
        if Path(target).name == "report.tex":
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(SystemExit):
            main([*USUAL, "--resamples", "100", "--out", "report"])
    run(capsys, *USUAL, "--out", "report")
    assert sorted(path.name for path in Path("report").iterdir()) == FILES
    Path("report/report.tex").write_text("my own changes")
    assert "report.tex is there, and posnet-score did not write it" in refused_after_showing(
        capsys, *USUAL, "--out", "report"
    )


def test_runs_look_at_a_report_and_replace_it_one_after_the_other(data, capsys, monkeypatch):
    """Else files of two runs would be mixed, or one of them take the other's for somebody else's."""
    run(capsys, *USUAL, "--out", "report")
    called = []

    def watched(original):
        def call(*arguments):
            folder = os.open("report", os.O_RDONLY)
            assert not try_lock(folder)
            os.close(folder)
            called.append(original.__name__)
            return original(*arguments)

        return call

    for name in ("json_if_whole", "write_lines"):
        monkeypatch.setattr(publish, name, watched(getattr(publish, name)))
    monkeypatch.setattr(Path, "replace", watched(Path.replace))
    run(capsys, *USUAL, "--out", "report")
    assert {"json_if_whole", "write_lines", "replace"} == set(called)
    assert called.count("replace") >= len(FILES)


def test_a_large_report_is_still_ones_own(data, capsys):
    """It grows with the lines and systems, beyond the limit of other small files."""
    run(capsys, *USUAL, "--out", "report")
    with open("report/report.json", "a") as file:
        file.write(" " * SMALL)
    run(capsys, *USUAL, "--out", "report")
    assert Path("report/report.json").stat().st_size < SMALL


def refused_after_showing(capsys, *arguments):
    with pytest.raises(SystemExit):
        main(list(arguments))
    return capsys.readouterr().err


def test_neither_torch_nor_models_are_needed(data):
    """BLEU, chrF and TER start fast."""
    loaded = modules_of("import sys; from posnet_eval.score import main; main(sys.argv[1:])", *USUAL)
    assert "sacrebleu" in loaded
    assert not {"torch", "transformers", "comet", "fairseq", "matplotlib"} & loaded


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_latex_compiles(data, capsys):
    """As it is, and in a paper that reads it."""
    labels = {"base": "[b] 50% of $x_1$ & {y} \\z", "good": "*", "third": "~^<>|#→γ"}
    run(capsys, "--config", str(configure(data, systems=labels, columns=COLUMNS)), "--out", "report")
    paper = r"\documentclass{article}\usepackage{booktabs}\begin{document}Before \input{report} after\end{document}"
    write(data / "report" / "paper.tex", [paper])
    for name in ("report", "paper"):
        done = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", name],
            cwd="report",
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-2000:]
        assert Path("report", f"{name}.pdf").exists()
