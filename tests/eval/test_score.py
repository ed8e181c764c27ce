"""posnet-score: tables, scores, runs and marks."""

import io
import os
import shutil
from pathlib import Path

import pytest
import sacrebleu

from posnet_eval.score import main
from posnet_fairseq.shared.files import cache_folder
from support.scoring import FILES, SIZE, SYSTEMS, USUAL, configure, refused, report, run, write


def test_a_translation_from_standard_input(data, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path("good.txt").read_bytes())))
    systems = "--system", "good=good.txt", "piped=-"
    run(capsys, "--reference", "test.de", *systems, "--resamples", "200", "--out", "report")
    scores = report()["test_sets"][0]["scores"]
    assert scores["piped"]["bleu"]["value"] == scores["good"]["bleu"]["value"]


def test_table_report_and_scores(data, capsys):
    shown = run(capsys, *USUAL, "--baseline2", "other", "--metrics", "bleu,chrf", "TER", "--out", "report").out
    lines = [Path(f"{name}.txt").read_text().splitlines() for name in ("base", "good", "other")]
    reference = [Path("test.de").read_text().splitlines()]
    assert sorted(path.name for path in Path("report").iterdir()) == FILES
    (test_set,) = report()["test_sets"]
    for name, output in zip(("base", "good", "other"), lines, strict=True):
        score = test_set["scores"][name]["bleu"]
        assert score["value"] == pytest.approx(sacrebleu.corpus_bleu(output, reference).score)
        assert f"{score['value']:.1f} ±{score['half_width']:.1f}" in shown
        assert test_set["scores"][name]["ter"]["value"] == pytest.approx(sacrebleu.corpus_ter(output, reference).score)
    assert test_set["scores"]["good"]["ter"]["marks"] == [["†", "↑"], ["‡", "↑"]]  # fewer edits
    assert test_set["scores"]["good"]["bleu"]["marks"] == [["†", "↑"], ["‡", "↑"]]
    assert test_set["scores"]["base"]["bleu"]["marks"] == []
    assert "†↑‡↑" in shown
    signature = "BLEU: nrefs:1|bs:200|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:"
    assert signature in Path("report/report.md").read_text()
    assert signature not in shown
    assert signature in run(capsys, *USUAL).out
    assert " on detokenized text" in Path("report/report.md").read_text()
    run(capsys, *USUAL, "--tokenize", "none", "--lowercase", "--out", "tokens")
    assert " on lowercased text" in Path("tokens/report.md").read_text()
    assert "Significantly different (p ≤ 0.05) from † base, ‡ other: ↑ better, ↓ worse, = identical outputs (" in shown
    assert test_set["languages"] == ["en", "de"]
    assert len(test_set["segments"]["bleu"]["good"]) == SIZE
    for name in FILES:
        assert "†" in Path("report", name).read_text() or name in ("report.csv", "report.tex", "segments.tsv")
    latex = Path("report/report.tex").read_text()
    assert r"$^{\dagger\uparrow\ddagger\uparrow}$" in latex
    assert "scriptsize[" not in latex


@pytest.mark.parametrize("columns", ["40", "60", "80", "100"])
def test_a_narrow_terminal_leaves_intervals_and_marks(data, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    names = ["base", "good", "other"]
    of_compare = ("gate", "params", "train tokens/s", "decode sent./s", "train memory")
    facts = {title: dict.fromkeys(names, "1,234") for title in of_compare}
    sets = {"test": {"reference": "test.de", "outputs": "{system}.txt"}}
    choices = {"systems": names, "baselines": ["base"], "columns": facts, "metrics": ["bleu", "chrf", "ter"]}
    config = str(configure(data, **choices, test_sets=sets))
    lines = run(capsys, "--config", config, "--out", "report").out.splitlines()
    (test_set,) = report()["test_sets"]
    for name, scores in test_set["scores"].items():
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        for score in scores.values():
            marks = "".join(map("".join, score["marks"]))
            assert f"{score['value']:.1f} ±{score['half_width']:.1f} {marks}".strip() in line


def test_the_report_is_there_though_nobody_reads_what_is_printed(data, monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    with monkeypatch.context() as patch, open(writing, "w") as stream:
        patch.setattr("sys.stdout", stream)
        with pytest.raises(SystemExit) as end:
            main([*USUAL, "--workers", "1", "--out", "report"])
    assert end.value.code == 141
    assert sorted(path.name for path in Path("report").iterdir()) == FILES


def test_where_no_cache_can_be_written_scores_are_not_lost(data, capsys, monkeypatch):
    expected = run(capsys, *USUAL).out
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    shown = run(capsys, *USUAL)
    assert shown.out == expected
    assert "no statistics are cached: /dev/null/posnet/scores.sqlite cannot be used" in shown.err
    for needed in (["--cached-only"], ["--cache", "/dev/null/x"]):
        assert "Choose another place with --cache" in refused(capsys, *USUAL, *needed)


def test_a_user_without_a_home_has_a_temporary_cache(monkeypatch, tmp_path, capsys):
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # no passwd entry
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert not end.value.code
    assert cache_folder().parent == tmp_path


def test_runs_that_are_the_same_count_once(data, capsys):
    """However often an output is given, it is the same system, and no test gains or loses by it."""
    for test in ("shift", "bs", "ar"):
        found = []
        for name in ("twin.txt", "third.txt"):
            shutil.copy("good.txt", name)
        for files in ("good.txt", "good.txt,twin.txt,third.txt"):
            run(capsys, *USUAL[:4], "--system", "one=base.txt", f"two={files}", "--test", test, "--out", "report")
            (difference,) = report()["test_sets"][0]["differences"]
            found.append(difference["metrics"]["chrf"])
        for key, value in found[0].items():
            assert found[1][key] == pytest.approx(value), key
    run(capsys, *USUAL[:4], "--system", "one=good.txt", "two=twin.txt,third.txt", "--out", "report")
    assert report()["test_sets"][0]["scores"]["two"]["chrf"]["marks"] == [["†", "="]]
    run(capsys, *USUAL[:4], "--system", "one=good.txt,base.txt", "two=base.txt,twin.txt", "--out", "report")
    assert report()["test_sets"][0]["scores"]["two"]["chrf"]["marks"] == [["†", "="]]


def test_the_best_are_bold(data, capsys):
    """The highest BLEU, the lowest TER; of equal ones all."""
    shutil.copy("good.txt", "twin.txt")
    run(capsys, *USUAL[:4], *SYSTEMS, "twin=twin.txt", "--metrics", "bleu,ter", "--out", "report")
    rows = [line.split(" | ") for line in Path("report/report.md").read_text().splitlines() if line.startswith("| ")]
    bold = {row[0].strip("| "): ["**" in cell for cell in row[1:]] for row in rows[2:]}
    assert bold == {"base": [False] * 2, "good": [True] * 2, "other": [False] * 2, "twin": [True] * 2}


def test_names_from_paths(data, capsys):
    for folder in ("a", "b"):
        write(data / folder / "hyp.txt", Path("base.txt").read_text().splitlines())
    shown = run(
        capsys, "--reference", "test.de", "--system", "a/hyp.txt", "good=good.txt", "b/hyp.txt", "--out", "report"
    )
    assert report()["systems"] == ["a/hyp", "good", "b/hyp"]
    assert "a/hyp" in shown.out


def test_many_runs_may_have_a_name_that_is_too_long_together(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = [f"base.seed{number:03}.de" for number in range(30)]
    for name in ["test.de", *names]:
        Path(name).write_text("one two three four\n")
    shown = run(capsys, "--reference", "test.de", "--system", f"base={','.join(names)}", "--out", "report")
    assert len(report()["test_sets"][0]["scores"]["base"]["bleu"]["runs"]) == len(names)
    assert "100.0" in shown.out


def test_names_are_neither_markup_nor_emoji(data, capsys):
    names = [":car:", "[link]", "[bold]x[/bold]"]
    systems = [f"{name}={file}.txt" for name, file in zip(names, ("base", "good", "other"), strict=True)]
    shown = run(capsys, "--reference", "test.de", "--system", *systems).out
    assert [line.split(" ")[0] for line in shown.splitlines() if "±" in line][:3] == names
    assert "from † :car::" in shown
