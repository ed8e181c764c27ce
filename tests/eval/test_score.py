"""posnet-score as a command, with what a careless user does to it."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import yaml
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from posnet_eval import metrics
from posnet_eval.inputs.texts import read_output
from posnet_eval.metrics.base import MeanMetric
from posnet_eval.report import publish
from posnet_eval.score import main
from posnet_fairseq.shared.errors import UsageError
from support.made_up import sacrebleu_test_set, text, translated

SIZE = 60
FILES = ["report.csv", "report.html", "report.json", "report.md", "report.tex"]


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with source, reference and outputs of three systems, in which the commands run."""
    reference = text(SIZE)
    write(tmp_path / "test.de", reference)
    write(tmp_path / "test.en", text(SIZE, seed=9))
    for seed, name in enumerate(("base", "good", "other"), 2):
        write(tmp_path / f"{name}.txt", translated(reference, seed))
    write(tmp_path / "good.txt", [*reference[: SIZE // 2], *translated(reference, 3)[SIZE // 2 :]])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "140")
    return tmp_path


SYSTEMS = ("--system", "base=base.txt", "good=good.txt", "other=other.txt")
USUAL = ("--source", "test.en", "--reference", "test.de", *SYSTEMS, "--resamples", "200")


def run(capsys, *arguments):
    main([*arguments, "--workers", "1"])
    return capsys.readouterr()


def refused(capsys, *arguments):
    """What is said on standard error."""
    with pytest.raises(SystemExit) as exit:
        main(list(arguments))
    assert exit.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def report(folder="report"):
    return json.loads(Path(folder, "report.json").read_text())


def test_table_report_and_scores(data, capsys):
    shown = run(capsys, *USUAL, "--baseline2", "other", "--metrics", "bleu,chrf,ter", "--out", "report").out
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
    assert "BLEU: nrefs:1|bs:200|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:" in shown
    assert "Different with p ≤ 0.05 from † base, ‡ other" in shown
    assert test_set["languages"] == ["en", "de"]
    assert len(test_set["segments"]["bleu"]["good"]) == SIZE
    rows = list(csv.DictReader(Path("report/report.csv").read_text().splitlines()))
    assert [row["baseline"] for row in rows if row["system"] == "good" and row["metric"] == "BLEU"] == ["base", "other"]
    for name in FILES:
        assert "†" in Path("report", name).read_text() or name in ("report.csv", "report.tex")
    assert r"$^{\dagger\uparrow\ddagger\uparrow}$" in Path("report/report.tex").read_text()


def test_a_narrow_terminal_cuts_nothing_off(data, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    columns = {
        f"column{number}": {name: f"v{number}{name}" for name in ("base", "good", "other")} for number in range(9)
    }
    plan = {
        "systems": ["base", "good", "other"],
        "columns": columns,
        "resamples": 100,
        "test_sets": {"test": {"reference": "test.de", "outputs": {n: f"{n}.txt" for n in ("base", "good", "other")}}},
    }
    Path("plan.yaml").write_text(yaml.safe_dump(plan))
    lines = run(capsys, "--config", "plan.yaml", "--out", "report").out.splitlines()
    (score,) = [test_set["scores"] for test_set in report()["test_sets"]]
    for name in ("base", "good", "other"):
        (line,) = [line for line in lines if line.startswith(name)]
        assert [f"v{number}{name}" for number in range(9)] == line.split()[1:10]
        assert f"{score[name]['bleu']['value']:.1f} ±{score[name]['bleu']['half_width']:.1f}" in line


COLUMNS = ("gate", "params", "train tokens/s", "decode sent./s", "train memory")  # of recipes/compare.sh


@pytest.mark.parametrize("columns", ["40", "60", "80", "100"])
def test_a_narrow_terminal_leaves_intervals_and_marks(data, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    plan = {
        "systems": ["base", "good", "other"],
        "columns": {title: dict.fromkeys(("base", "good", "other"), "1,234") for title in COLUMNS},
        "metrics": ["bleu", "chrf", "ter"],
        "resamples": 100,
        "test_sets": {"test": {"reference": "test.de", "outputs": {n: f"{n}.txt" for n in ("base", "good", "other")}}},
    }
    Path("plan.yaml").write_text(yaml.safe_dump(plan))
    lines = run(capsys, "--config", "plan.yaml", "--out", "report").out.splitlines()
    (test_set,) = report()["test_sets"]
    for name, scores in test_set["scores"].items():
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        for score in scores.values():
            marks = "".join(map("".join, score["marks"]))
            assert f"{score['value']:.1f} ±{score['half_width']:.1f} {marks}".strip() in line


def test_again_from_the_cache(data, capsys, monkeypatch):
    first = run(capsys, *USUAL, "--out", "a")

    def never(*arguments):
        raise AssertionError("counted again")

    monkeypatch.setattr("posnet_eval.metrics.sacrebleu_metric.SacrebleuMetric.count", never)
    second = run(capsys, *USUAL, "--cached-only", "--out", "b")
    assert first.out == second.out
    for name in FILES:
        assert Path("a", name).read_bytes() == Path("b", name).read_bytes(), name
    monkeypatch.undo()
    monkeypatch.chdir(data)
    monkeypatch.setenv("XDG_CACHE_HOME", str(data / "cache"))
    write(data / "good.txt", [*Path("good.txt").read_text().splitlines()[:-1], "something else"])
    assert "error: 1 of " in refused(capsys, *USUAL, "--cached-only")


def test_lowercase_and_tokeniser_show_in_the_signature(data, capsys):
    assert "case:lc|eff:no|tok:intl" in run(capsys, *USUAL, "-lc", "--tokenize", "intl").out
    zh = ["我们今天去看看。", "他说你好。"] * 10
    for name in ("test.zh", "a.zh"):
        write(data / name, zh)
    assert "tok:zh" in run(capsys, "--reference", "test.zh", "--system", "a.zh").out
    write(data / "reference", zh)
    assert "looks Chinese, Japanese or Korean" in refused(capsys, "--reference", "reference", "--system", "a.zh")
    assert "tok:zh" in run(capsys, "--reference", "reference", "-l", "en-zh", "--system", "a.zh").out


def p_against(baseline):
    """BLEU's p of the other systems."""
    differences = report()["test_sets"][0]["differences"]
    return [one["metrics"]["bleu"]["p"] for one in differences if one["from"] == baseline]


def test_p_is_sacrebleus(data, capsys):
    run(capsys, *USUAL, "--out", "report")
    lines = [(name, Path(f"{name}.txt").read_text().splitlines()) for name in ("base", "good", "other")]
    metric = {"BLEU": BLEU(references=[Path("test.de").read_text().splitlines()])}
    _, results = PairedTest(lines, metric, None, test_type="bs", n_samples=200)()
    assert p_against("base") == [result.p_value for result in results["BLEU"][1:]]


def test_randomisation(data, capsys):
    shown = run(capsys, *USUAL, "--test", "ar", "--trials", "500", "--out", "report")
    assert "nrefs:1|bs:200|ar:500|seed:12345" in shown.out
    assert "approximate randomisation, 500 trials" in shown.out
    metric = BLEU(references=[Path("test.de").read_text().splitlines()])
    lines = [(name, Path(f"{name}.txt").read_text().splitlines()) for name in ("base", "good", "other")]
    _, results = PairedTest(lines, {"BLEU": metric}, None, test_type="ar", n_samples=500)()
    assert p_against("base") == [result.p_value for result in results["BLEU"][1:]]


def test_runs_of_a_system(data, capsys):
    """Mean and deviation over runs; the test is on the lines of all runs."""
    shown = run(
        capsys, *USUAL[:4], "--system", "one=base.txt", "two=good.txt,other.txt", "--out", "report", "--resamples", "99"
    )
    (test_set,) = report()["test_sets"]
    score = test_set["scores"]["two"]["bleu"]
    reference = Path("test.de").read_text().splitlines()
    outputs = [Path(f"{name}.txt").read_text().splitlines() for name in ("good", "other")]
    runs = [sacrebleu.corpus_bleu(lines, [reference]).score for lines in outputs]
    assert score["runs"] == pytest.approx(runs)
    assert score["value"] == pytest.approx(sum(runs) / 2)
    assert score["deviation"] == pytest.approx(abs(runs[0] - runs[1]) / 2**0.5)
    assert f"σ{score['deviation']:.1f}" in shown.out
    pooled = sacrebleu.corpus_bleu(outputs[0] + outputs[1], [reference * 2]).score
    one = sacrebleu.corpus_bleu(Path("base.txt").read_text().splitlines(), [reference]).score
    (difference,) = test_set["differences"]
    assert difference["metrics"]["bleu"]["value"] == pytest.approx(pooled - one)


def test_runs_that_are_the_same_count_once(data, capsys):
    """However often an output is given, it is the same system, and no test gains or loses by it."""
    for test in ("bs", "ar"):
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


def test_the_same_outputs(data, capsys):
    shutil.copy("base.txt", "copy.txt")
    shown = run(capsys, "--reference", "test.de", "--system", "base=base.txt", "copy=copy.txt", "--out", "report")
    (difference,) = report()["test_sets"][0]["differences"]
    assert difference["metrics"]["bleu"]["same"]
    assert difference["metrics"]["bleu"]["p"] is None
    assert report()["test_sets"][0]["scores"]["copy"]["bleu"]["marks"] == [["†", "="]]
    assert "†=" in shown.out


def test_a_second_baseline_alone(data, capsys):
    run(capsys, *USUAL, "--baseline2", "good", "--out", "report")
    assert report()["baselines"] == ["base", "good"]


def test_the_best_are_bold(data, capsys):
    """The highest BLEU, the lowest TER; of equal ones all."""
    shutil.copy("good.txt", "twin.txt")
    run(capsys, *USUAL[:4], *SYSTEMS, "twin=twin.txt", "--metrics", "bleu,ter", "--out", "report")
    rows = [line.split(" | ") for line in Path("report/report.md").read_text().splitlines() if line.startswith("| ")]
    bold = {row[0].strip("| "): ["**" in cell for cell in row[1:]] for row in rows[2:]}
    assert bold == {"base": [False] * 2, "good": [True] * 2, "other": [False] * 2, "twin": [True] * 2}


def test_one_system_without_a_baseline(data, capsys):
    shown = run(capsys, "--reference", "test.de", "--system", "base.txt")
    assert "base" in shown.out
    assert "†" not in shown.out


def test_several_references(data, capsys):
    shown = run(capsys, "--reference", "test.de", "other.txt", "--system", "good.txt", "--out", "report")
    assert "nrefs:2" in shown.out
    lines = [Path(name).read_text().splitlines() for name in ("good.txt", "test.de", "other.txt")]
    score = report()["test_sets"][0]["scores"]["good"]["bleu"]["value"]
    assert score == pytest.approx(sacrebleu.corpus_bleu(lines[0], lines[1:]).score)


def test_names_from_paths(data, capsys):
    for folder in ("a", "b"):
        write(data / folder / "hyp.txt", Path("base.txt").read_text().splitlines())
    shown = run(
        capsys, "--reference", "test.de", "--system", "a/hyp.txt", "good=good.txt", "b/hyp.txt", "--out", "report"
    )
    assert report()["systems"] == ["a/hyp", "good", "b/hyp"]
    assert "a/hyp" in shown.out
    assert "x is given more than once" in refused(
        capsys, "--reference", "test.de", "--system", "x=base.txt", "x=good.txt"
    )


# --- fairseq's logs


LOG = """2026-01-01 | INFO | fairseq_cli.generate | loading
S-1\tzwei
T-1\ttwo
H-1\t-0.25\tt@@ wo
D-1\t-0.25\ttwo
P-1\t-0.1 -0.4
S-0\teins
H-0\t-1.5e-05\tone
D-0\t-1.5e-05\tone
H-0\t-2\tfirst
D-0\t-2\tfirst
2026-01-01 | INFO | Generate test with beam=5: BLEU4 = 1.00
"""


def test_logs_of_generate(tmp_path):
    log = tmp_path / "generate-test.txt"
    log.write_text(LOG)
    assert read_output(log) == ["one", "two"]
    log.write_text("\n".join(line for line in LOG.split("\n") if not line.startswith("D-")))
    assert read_output(log) == ["one", "t@@ wo"]
    log.write_text(LOG.replace("-1\t", "-3\t"))
    with pytest.raises(UsageError, match=r"without a translation of 2 sentences: 1, 2 \(counted from 0\).*multiple 1"):
        read_output(log)
    log.write_text(LOG + LOG)
    with pytest.raises(UsageError, match="holds sentence 1 of two runs"):
        read_output(log)
    log.write_text("H-Milch\t0\tist Text\n")
    assert read_output(log) == ["H-Milch\t0\tist Text"]


def test_a_log_is_scored(data, capsys):
    lines = Path("base.txt").read_text().splitlines()
    mixed = sorted(range(SIZE), key=lambda number: (number * 7) % SIZE)
    write(data / "log", [f"D-{number}\t-0.5\t{lines[number]}" for number in mixed])
    run(capsys, "--reference", "test.de", "--system", "plain=base.txt", "log=log", "--out", "report")
    assert report()["test_sets"][0]["scores"]["log"]["bleu"]["marks"] == [["†", "="]]


# --- sacreBLEU's test sets


def test_a_test_set_of_sacrebleus(data, capsys, monkeypatch):
    sacrebleu_test_set(monkeypatch, "wmt14/full", "en-de", data / "sets", Path("test.en"), Path("test.de"))
    run(capsys, "-t", "wmt14/full", "-l", "en-de", "--system", "base.txt", "--out", "report")
    (test_set,) = report()["test_sets"]
    assert (test_set["name"], test_set["size"]) == ("wmt14/full", SIZE)
    assert "has no languages en-it. Give --language-pair: cs-en, de-en, en-cs" in refused(
        capsys, "-t", "wmt14/full", "-l", "en-it", "--system", "base.txt"
    )
    assert "has several pairs of languages. Give" in refused(capsys, "-t", "wmt14/full", "--system", "base.txt")
    assert "has none of this name. Choose from wmt14, wmt14/full" in refused(
        capsys, "-t", "wmt14/fulll", "-l", "en-de", "--system", "base.txt"
    )


def test_a_test_set_that_is_out_of_reach(data, capsys, monkeypatch):
    from sacrebleu.dataset import DATASETS

    def unreachable(*arguments, **options):
        raise SystemExit(1)  # as sacreBLEU does

    monkeypatch.setattr(DATASETS["wmt13"], "process_to_text", unreachable)
    monkeypatch.setattr(DATASETS["wmt13"], "_outdir", str(data / "nowhere"))
    said = refused(capsys, "-t", "wmt13", "-l", "en-de", "--system", "base.txt")
    assert "is not in" in said
    assert "run sacrebleu -t wmt13 -l en-de --echo src, and copy that folder here" in said


# --- configuration files


CONFIG = {
    "systems": {"base": "Transformer", "good": None, "third": "gLinearNet & co"},
    "baselines": ["good"],
    "metrics": ["chrf"],
    "resamples": 100,
    "test_sets": {
        "news": {
            "languages": "en-de",
            "source": "test.en",
            "reference": "test.de",
            "outputs": {"base": "base.txt", "good": ["good.txt"], "third": ["other.txt", "base.txt"]},
        },
        "talks": {"reference": ["test.de"], "outputs": "runs/{system}_s*/talks.txt"},
    },
}


def configure(data, **changes):
    for system in ("base", "good", "third"):
        for seed in (1, 2):
            write(data / f"runs/{system}_s{seed}/talks.txt", translated(Path("test.de").read_text().splitlines(), seed))
    Path("elsewhere").mkdir(exist_ok=True)
    return write(data / "comparison.yaml", [yaml.safe_dump(CONFIG | changes, sort_keys=False)])


def test_configuration(data, capsys, monkeypatch):
    path = configure(data)
    monkeypatch.chdir(data / "elsewhere")  # paths are relative to the file
    shown = run(capsys, "--config", str(path), "--out", "report")
    content = report()
    assert content["baselines"] == ["good"]
    assert content["labels"] == {"base": "Transformer", "good": "good", "third": "gLinearNet & co"}
    assert [one["name"] for one in content["test_sets"]] == ["news", "talks"]
    news, talks = content["test_sets"]
    assert news["languages"] == ["en", "de"]
    assert len(news["scores"]["third"]["chrf"]["runs"]) == 2
    assert [len(talks["scores"][name]["chrf"]["runs"]) for name in content["systems"]] == [2, 2, 2]
    assert "nrefs:1|bs:100" in shown.out
    assert r"gLinearNet \& co" in Path("report/report.tex").read_text()
    run(
        capsys,
        "--config",
        str(path),
        "--out",
        "report",
        "--baseline",
        "base",
        "--baseline2",
        "third",
        "--resamples",
        "50",
    )
    assert report()["baselines"] == ["base", "third"]
    assert report()["resamples"] == 50


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sytems": ["a"]}, "the file has unknown keys: sytems"),
        ({"columns": ["params"]}, "columns is ['params'], it should be a mapping"),
        ({"columns": {"params": "3M"}}, "column 'params' is '3M', it should be a mapping"),
        ({"columns": {"params": {"bass": 1, "base": 2}}}, "column 'params': bass not among the systems"),
        ({"columns": {"params": {"base": [1]}}}, "column 'params': base is [1], it should be text (in quotes) or a"),
        ({"columns": {"params": {"base": True}}}, "column 'params': base is True, it should be text (in quotes) or a"),
        ({"columns": {"params": {"base": None}}}, "column 'params': base is None, it should be text (in quotes) or a"),
        ({"columns": {"params": {"base": float("nan")}}}, "column 'params': base is nan, which is no number. Leave it"),
        ({"columns": {"params": {"base": "a\nb"}}}, "'a\\nb' in column 'params': give visible characters, in one line"),
        ({"columns": {"params": {"base": ""}}}, "'' in column 'params': give visible characters, in one line"),
        ({"columns": {"": {}}}, "'' in column '': give visible characters, in one line"),
        ({"columns": {"a\x1b": {}}}, "'a\\x1b' in column 'a\\x1b': give visible characters, in one line"),
        ({"columns": {7: {}, "7": {}}}, "column '7' is there twice"),
        ({"columns": {"chrF": {}}}, "column 'chrF': the report has one of this name. Choose another title"),
        ({"columns": {"score": {}}}, "column 'score': the report has one of this name. Choose another title"),
        ({"systems": []}, "systems is neither a list of names nor"),
        ({"baselines": "best"}, "baseline 'best' is not among the systems. Choose from base, good, third"),
        ({"baselines": ["base", "good", "third"]}, "give two at most"),
        ({"systems": ["base", "base"]}, "name each one once"),
        ({"systems": ["base", {"good": "x"}]}, "systems: {'good': 'x'} is no name. Give text"),
        ({"systems": {"base": ["x"]}}, "the label of base: ['x'] is no name"),
        ({"systems": {"base": "two\nlines", "good": 1, "third": 2}}, "give one of visible characters, in one line"),
        ({"systems": {"base": "x", "good": "x", "third": "y"}}, "the systems are x, x, y. Give each its own"),
        ({"test_sets": {"x": {"reference": "r", "outputs": {"base": ["a", "a"]}}}}, "a file is given twice as a run"),
        ({"metrics": []}, "no metric is named. Choose from bleu"),
        ({"resamples": 10**11}, "resamples 100000000000: give 40 to 1,000,000"),
        ({"test_sets": {"x": {"reference": [], "outputs": "{system}"}}}, "reference of test set x is empty"),
        ({"test_sets": {"x": {"reference": "a\0b", "outputs": "{system}"}}}, "which is no path"),
        ({"metrics": ["bleu", "rouge"]}, "metric 'rouge': there is none of this name"),
        ({"metrics": ["bleu", "bleu"]}, "name each one once"),
        ({"resamples": "many"}, "resamples is 'many', it should be a whole number"),
        ({"resamples": 0}, "resamples 0: give 40 to 1,000,000"),
        ({"seed": -1}, "seed -1: give 0 or more"),
        ({"lowercase": "yes please"}, "lowercase is 'yes please', it should be true or false"),
        ({"test": "t-test"}, "test 't-test': there is none of this name. Choose bs or ar"),
        ({"test_sets": {}}, "test_sets is empty"),
        ({"test_sets": {"x": {"outputs": "{system}"}}}, "test set x: give either reference or test_set"),
        ({"test_sets": {"x": {"reference": "test.de"}}}, "test set x lacks outputs"),
        ({"test_sets": {"x": {"reference": "test.de", "outputs": "hyp"}}}, "the pattern 'hyp' lacks {system}"),
        ({"test_sets": {"x": {"reference": "test.de", "outputs": {"bass": "x"}}}}, "bass not among the systems"),
        ({"test_sets": {"x": {"reference": "test.de", "languages": "german", "outputs": "{system}"}}}, "as in en-de"),
    ],
)  # fmt: skip
def test_mistakes_in_a_configuration(data, capsys, changes, expected):
    assert expected in refused(capsys, "--config", str(configure(data, **changes)))


def test_a_pattern_that_takes_runs_of_another_system(data, capsys):
    for folder in ("base_s1", "base_small_s1", "base_small_s2"):
        write(data / "runs" / folder / "test.de", Path("base.txt").read_text().splitlines())
    sets = {"x": {"reference": "test.de", "outputs": "runs/{system}_s*/test.de"}}
    systems = ["base", "base_small"]
    config = str(write(data / "c.yaml", [yaml.safe_dump({"systems": systems, "test_sets": sets})]))
    said = refused(capsys, "--config", config)
    assert (
        "takes runs/base_small_s1/test.de for a run of base and of base_small. Make it narrower, as with s[0-9]*"
        in said
    )
    write(data / "c.yaml", [Path(config).read_text().replace("_s*", "_s[0-9]*")])
    run(capsys, "--config", config, "--out", "report")
    scores = report()["test_sets"][0]["scores"]
    assert [len(scores[name]["bleu"]["runs"]) for name in systems] == [1, 2]


def test_brackets_in_the_way(data, capsys):
    folder = data / "x[1]"
    write(folder / "runs" / "a[b]_s1" / "test.de", Path("base.txt").read_text().splitlines())
    shutil.copy("test.de", folder)
    sets = {"x": {"reference": "test.de", "outputs": "runs/{system}_s?/test.de"}}
    config = write(folder / "c.yaml", [yaml.safe_dump({"systems": ["a[b]"], "test_sets": sets})])
    assert "a[b]" in run(capsys, "--config", str(config)).out


def test_numbers_may_be_names(data, capsys):
    sets = {2014: {"reference": "test.de", "outputs": {1: "base.txt", 2: "good.txt"}}}
    config = configure(data, systems={1: None, 2: 2.5}, baselines=[2], test_sets=sets)
    run(capsys, "--config", str(config), "--out", "report")
    content = report()
    assert (content["baselines"], content["labels"]) == (["2"], {"1": "1", "2": "2.5"})
    assert content["test_sets"][0]["name"] == "2014"


COLUMNS = {
    "params_&_50%": {"base": "3.10M", "good": "[b]3*22_M"},
    "[b]tokens/s": {"third": 2815, "base": 12862},
    "decode": {"base": 118.0, "good": 1160.25},
    "time": {"good": "12:30"},
}


def test_columns_stand_before_the_scores_everywhere(data, capsys):
    shown = run(capsys, "--config", str(configure(data, columns=COLUMNS)), "--out", "report").out
    rows = {line.split()[0]: line.split()[1:] for line in shown.split("\n\n")[0].splitlines()[1:]}
    assert rows["params_&_50%"] == ["[b]tokens/s", "decode", "time", "chrF"]
    assert rows["Transformer"][:5] == ["3.10M", "12,862", "118.0", "–", "57.6"]
    assert rows["good"][:4] == ["[b]3*22_M", "–", "1160.25", "12:30"]
    markdown = Path("report/report.md").read_text()
    assert "|  | params\\_&\\_50% | \\[b\\]tokens/s | decode | time | chrF |\n| --- | ---: " in markdown
    assert "\n| Transformer | 3.10M | 12,862 | 118.0 | – | 57.6 ±" in markdown
    assert "\n| good | \\[b\\]3\\*22\\_M | – | 1160.25 | 12:30 | " in markdown
    latex = Path("report/report.tex").read_text()
    assert r"\begin{tabular}{lrrrrll}" in latex
    assert r" &  &  &  &  & \multicolumn{1}{c}{news (en-de)} & " in latex
    assert r"\cmidrule(lr){6-6}" in latex
    assert r" & params\_\&\_50\% & [b]tokens/s & decode & time & chrF & chrF \\" in latex
    assert r"{Transformer} & 3.10M & 12,862 & 118.0 & -- & 57.6" in latex
    assert report()["columns"] == COLUMNS
    header, *lines = csv.reader(Path("report/report.csv").read_text().splitlines())
    assert header[-5:] == ["signature", *COLUMNS]
    assert {line[1]: line[-4:] for line in lines if line[0] == "talks"} == {
        "base": ["3.10M", "12862", "118.0", ""],
        "good": ["[b]3*22_M", "", "1160.25", "12:30"],
        "third": ["", "2815", "", ""],
    }


def test_columns_of_a_system_without_scores(data, capsys):
    sets = {"talks": CONFIG["test_sets"]["talks"]}
    config = str(configure(data, columns=COLUMNS, test_sets=sets))
    for seed in (1, 2):
        Path(f"runs/third_s{seed}/talks.txt").unlink()
    run(capsys, "--config", config, "--skip-missing", "--out", "report")
    assert "| gLinearNet & co | – | 2,815 | – | – | – |" in Path("report/report.md").read_text()


def test_a_time_is_no_number(data, capsys):
    """YAML would make 750 of 12:30 and 3661 of 1:01:01."""
    config = configure(data)
    with config.open("a") as file:
        file.write("columns: {hours: {base: 12:30, good: 1:01:01.5, third: 1_000}}\n")
    run(capsys, "--config", str(config), "--out", "report")
    assert report()["columns"] == {"hours": {"base": "12:30", "good": "1:01:01.5", "third": 1000}}


def test_a_column_may_be_called_as_a_metric_that_is_not_there(data, capsys):
    config = str(configure(data, columns={"BLEU": {"base": 31}}))
    run(capsys, "--config", config)
    assert "column 'BLEU': the report has one" in refused(capsys, "--config", config, "--metrics", "bleu")


def test_a_key_that_is_there_twice(data, capsys):
    write(data / "twice.yaml", ["systems: [base]", "test_sets:", "  news: {a: 1}", "  news: {b: 2}"])
    assert "is not YAML in line 3: 'news' is there twice" in refused(capsys, "--config", "twice.yaml")


def test_files_that_are_no_configuration(data, capsys):
    assert "nowhere.yaml: No such file" in refused(capsys, "--config", "nowhere.yaml")
    assert "is not YAML in line 2" in refused(capsys, "--config", str(write(data / "x.yaml", ["a: b", "c: [d"])))
    assert "is not a mapping" in refused(capsys, "--config", str(write(data / "x.yaml", ["just text"])))
    assert "--reference, --system beside --config" in refused(
        capsys, "--config", "x.yaml", "--reference", "a", *SYSTEMS
    )


# --- bad files: everything is said at once, and nothing is scored


def test_line_counts_differ(data, capsys):
    lines = Path("good.txt").read_text().splitlines()
    write(data / "good.txt", [*lines[:20], *lines[21:]])
    write(data / "other.txt", [*Path("other.txt").read_text().splitlines(), "one more"])
    said = refused(capsys, *USUAL)
    assert "nothing was scored" in said
    assert "system good: good.txt has 59 lines, the reference 60; line 21 is the first that seems out of step" in said
    assert "system other: other.txt has 61 lines, the reference 60; line 61 is" in said


def test_source_and_reference_differ(data, capsys):
    write(data / "test.en", ["one line"])
    assert "source test.en has 1 lines, the reference 60" in refused(capsys, *USUAL)


def test_bytes_that_are_no_text(data, capsys):
    Path("good.txt").write_bytes(b"gut\nM\xfcll\n" + b"x\n" * 58)
    assert "good.txt is not UTF-8: line 2 has an invalid byte at offset 5" in refused(capsys, *USUAL)


def test_missing_systems(data, capsys):
    Path("base.txt").unlink()
    Path("other.txt").unlink()
    said = refused(capsys, *USUAL)
    assert "system base: there is no base.txt" in said
    assert "system other: there is no other.txt" in said
    shown = run(capsys, *USUAL, "--skip-missing", "--out", "report")
    assert "missing: base on test: there is no base.txt" in shown.out
    assert report()["test_sets"][0]["missing"] == {"base": "there is no base.txt", "other": "there is no other.txt"}
    table = Path("report/report.md").read_text()
    assert "| base | – | – |" in table
    assert "Different" not in table + shown.out  # nothing was compared with the baseline that is missing
    config = configure(
        data, test_sets=CONFIG["test_sets"] | {"late": {"reference": "test.de", "outputs": "late/{system}"}}
    )
    write(data / "base.txt", Path("good.txt").read_text().splitlines())
    write(data / "other.txt", Path("good.txt").read_text().splitlines())
    assert "missing: third on late" in run(capsys, "--config", str(config), "--skip-missing", "--out", "report").out
    assert [len(one["scores"]) for one in report()["test_sets"]] == [3, 3, 0]
    Path("good.txt").unlink()
    Path("base.txt").unlink()
    Path("other.txt").unlink()
    assert "no system has an output" in refused(capsys, *USUAL, "--skip-missing")


def test_empty_lines_are_scored_and_said(data, capsys):
    lines = Path("good.txt").read_text().splitlines()
    write(data / "good.txt", ["", *lines[1:30], "", *lines[31:]])
    assert "note: good on test: 2 lines empty (1, 31)" in run(capsys, *USUAL).out


def test_only_newlines_end_lines(data, capsys):
    """U+2028, vertical tabs and lone carriage returns are part of a line; \\r\\n and a byte order mark are not."""
    odd = ["a\u2028b c", "d\x0be f", "g\rh i", "j\x85k l"]
    Path("odd.de").write_bytes(b"\xef\xbb\xbf" + "".join(f"{line}\r\n" for line in odd).encode())
    write(data / "odd.txt", odd)
    run(capsys, "--reference", "odd.de", "--system", "odd.txt", "--out", "report")
    (test_set,) = report()["test_sets"]
    assert test_set["size"] == 4
    assert test_set["scores"]["odd"]["chrf"]["value"] == 100


def test_the_reference_of_another_test_set(data, capsys):
    write(data / "test.de", text(SIZE, seed=77))
    shown = run(capsys, *USUAL).out
    for name in ("base", "good", "other"):
        assert f"note: {name} on test: its lines are no more like their own references" in shown


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--reference", "test.de"), "nothing to score. Give --system"),
        (SYSTEMS, "give either --reference FILE or --test-set NAME"),
        ((*USUAL, "--baseline", "best"), "baseline 'best' is not among the systems. Choose from base, good, other"),
        ((*USUAL, "--baseline", "base", "--baseline2", "base"), "both baselines are 'base'"),
        ((*USUAL, "--metrics", "blue"), "metric 'blue': there is none of this name. Choose from bleu"),
        ((*USUAL, "--language-pair", "German"), "language pair 'German': give source and target as in en-de"),
        ((*USUAL, "--resamples", "0"), "resamples 0: give 40 to 1,000,000"),
        ((*USUAL, "--metrics", ""), "no metric is named"),
        ((*USUAL, "--tokenize", "moses"), "tokeniser 'moses': choose one of sacreBLEU's, none, zh, 13a"),
        ((*USUAL, "--workers", "0"), "--workers 0: give 1 or more"),
        ((*USUAL, "--out", "test.de"), "--out test.de: File exists"),
        (("--reference", "test.de", "--system", "x=base.txt,"), "a file is not named"),
        (("--reference", "test.de", *SYSTEMS, "--metrics", "comet"), "reads the source"),
        (("-t", "wmt14", "--source", "test.en", *SYSTEMS), "--source beside --test-set"),
    ],
)
def test_mistakes_on_the_command_line(data, capsys, arguments, expected):
    assert expected in refused(capsys, *arguments)


def test_no_line_and_one_line(data, capsys):
    for name in ("none.de", "none.txt"):
        write(data / name, [])
    assert "reference none.de is empty" in refused(capsys, "--reference", "none.de", "--system", "none.txt")
    for name, line in (("one.de", "Guten Tag allerseits heute"), ("a.txt", "Guten Tag heute"), ("b.txt", "")):
        write(data / name, [line])
    shown = run(
        capsys, "--reference", "one.de", "--system", "a.txt", "b.txt", "--metrics", "bleu,chrf,ter", "--out", "report"
    )
    assert "one, de, 1 line" in shown.out
    assert sorted(path.name for path in Path("report").iterdir()) == FILES
    assert report()["test_sets"][0]["scores"]["b"]["ter"]["value"] == 100


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
    assert "Model of good on test is not a number in 1 lines, the first is line 5" in said
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


def test_a_disk_that_fills_up(data, capsys, monkeypatch):
    """On a real small disk, where this user may mount one: the old report stays whole, nothing half-written is left."""
    disk = data / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        run(capsys, *USUAL, "--out", str(disk))
        before = {path.name: path.read_bytes() for path in disk.iterdir()}
        (disk / "ballast").write_bytes(b"x" * (os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - 8192))
        with pytest.raises(SystemExit) as exit:
            main([*USUAL, "--out", str(disk), "--resamples", "100"])
        assert exit.value.code == 2
        said = capsys.readouterr()
        assert "the disk is full" in said.err
        assert "±" in said.out  # the scores were shown
        (disk / "ballast").unlink()
        assert {path.name: path.read_bytes() for path in disk.iterdir()} == before
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


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


def refused_after_showing(capsys, *arguments):
    with pytest.raises(SystemExit):
        main(list(arguments))
    return capsys.readouterr().err


def test_two_runs_into_one_folder(data):
    """Both end well, and leave one whole report."""
    code = "import sys; from posnet_eval.score import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, *USUAL, "--out", "report"]
    main([*USUAL])  # the cache
    for _ in range(2):
        runs = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in "ab"]
        for one in runs:
            _, said = one.communicate(timeout=60)
            assert one.returncode == 0, said
        assert sorted(path.name for path in Path("report").iterdir()) == FILES


def test_without_an_output(data):
    code = "import sys; from posnet_eval.score import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, *USUAL, "--out", "report"]
    done = subprocess.run(["bash", "-c", '"$@" >&-', "bash", *command], capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert Path("report/report.html").exists()


def test_neither_torch_nor_models_are_needed(data):
    """BLEU, chrF and TER start fast."""
    code = "import sys; from posnet_eval.score import main; main(sys.argv[1:]); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code, *USUAL], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1]
    assert "'sacrebleu'" in loaded
    for heavy in ("'torch'", "'transformers'", "'comet'", "'fairseq'", "'matplotlib'"):
        assert heavy not in loaded
    assert "Traceback" not in done.stderr


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


def test_a_hundred_thousand_lines(data, capsys):
    reference = text(1000) * 100
    write(data / "large.de", reference)
    for seed, name in enumerate(("a", "b")):
        write(
            data / f"{name}.txt", translated(reference[:1000], seed + 2) * 99 + translated(reference[:1000], seed + 5)
        )
    run(capsys, "--reference", "large.de", "--system", "a.txt", "b.txt", "--resamples", "100", "--out", "report")
    (test_set,) = report()["test_sets"]
    assert test_set["size"] == 100_000
    lines = Path("b.txt").read_text().splitlines()
    assert test_set["scores"]["b"]["bleu"]["value"] == pytest.approx(sacrebleu.corpus_bleu(lines, [reference]).score)
    assert Path("report/report.html").stat().st_size < 3e6
