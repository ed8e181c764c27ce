"""posnet-score with a configuration file."""

import base64
import csv
import re
from pathlib import Path

import pytest
import yaml

from support.scoring import COLUMNS, SYSTEMS, configure, refused, report, run, write


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
    assert "nrefs:1|bs:100" in Path("report/report.md").read_text()
    assert "\ngLinearNet & co " in shown.out
    assert r"gLinearNet \& co" in Path("report/report.tex").read_text()
    changed = "--baseline base --baseline2 third --resamples 50".split()
    run(capsys, "--config", str(path), "--out", "report", *changed)
    assert report()["baselines"] == ["base", "third"]
    assert report()["resamples"] == 50


def test_seeds_of_one_test_set_only(data, capsys):
    """The legend says where intervals are over sentences only."""
    sets = {
        name: {"reference": "test.de", "outputs": {"base": ["base.txt", *more], "good": ["good.txt"]}}
        for name, more in {"news": ["good.txt"], "talks": []}.items()
    }
    shown = run(capsys, "--config", str(configure(data, systems=["base", "good"], baselines=["base"], test_sets=sets)))
    assert "over sentences and training seeds (100 bootstrap resamples; on talks over sentences only)" in shown.out


SET = {"reference": "test.de", "outputs": {"base": "base.txt"}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # of another form
        ({"sytems": ["a"]}, "comparison.yaml: Object contains unknown field `sytems`. Correct it."),
        ({"test_sets": {"x": SET | {"outputs": "base.txt"}}}, "base.txt for a run of base and of good"),
        ({"test_sets": {"x": SET | {"reference": "a\0b"}}}, "comparison.yaml: 'a\\x00b' is no path."),
        ({"test_sets": {"x": SET | {"groups": "nowhere"}}}, "/nowhere: No such file or directory. Check"),
        ({"multi_reference": "median"}, "comparison.yaml: multi_reference median: choose one of mean, max."),
        ({"test_sets": {"x": SET | {"reference": "\ud800"}}}, r"comparison.yaml: '\ud800' is no path."),
        # names
        ({"columns": {"params": {"bass": 1, "base": 2}}}, "comparison.yaml: bass not among the systems."),
        ({"systems": ["base", "base"]}, "comparison.yaml: a system is there twice."),
        ({"systems": {1: "a", "1": "b"}}, "comparison.yaml: a key is there twice, as a number and as text."),
        ({"systems": {False: "Norwegian", "sv": "Swedish"}}, "comparison.yaml: YAML reads a key as False, such"),
        # files
        ({"pictures": {"a": "nowhere.png"}}, "nowhere.png: there is no such file"),
        ({"test_sets": {"x": SET | {"outputs": {"base": ["a", "./x/../a"]}}}}, "a file is given twice as a run"),
        ({"test_sets": {"x": SET | {"reference": ["a", "./x/../a"]}}}, "a file is given twice as a reference"),
        ({"test_sets": {"x": {"outputs": "{system}"}}}, "comparison.yaml: test set x: give either reference,"),
        # values that no plan may have
        ({"systems": {"base": "x", "good": "x", "third": "y"}}, "systems x, x, y: give one or more, each with a label"),
        ({"metrics": "BLEU, rouge"}, "metrics bleu, rouge: choose from bleu, chrf"),
        ({"metrics": ["rouge"]}, "metrics rouge: choose from bleu, chrf, chrf++, ter, bleurt, comet, comet-kiwi; 1"),
        # what stands in tables
        ({"systems": {"base": "two\nlines"}}, "'two\\nlines': give visible characters, in one line"),
        ({"columns": {"chrF": {}}}, "column 'chrF': the report has one of this name. Choose another title"),
    ],
)  # fmt: skip
def test_mistakes_in_a_configuration(data, capsys, changes, expected):
    if "systems" in changes:
        changes = {"baselines": [], "test_sets": {"x": SET | {"outputs": {}}}} | changes
    assert expected in refused(capsys, "--config", str(configure(data, **changes)))


def test_a_pattern_that_takes_runs_of_another_system(data, capsys):
    for folder in ("base_s1", "base_small_s1", "base_small_s2"):
        write(data / "runs" / folder / "test.de", Path("base.txt").read_text().splitlines())
    sets = {"x": {"reference": "test.de", "outputs": "runs/{system}_s*/test.de"}}
    systems = ["base", "base_small"]
    config = str(write(data / "c.yaml", [yaml.safe_dump({"systems": systems, "test_sets": sets})]))
    said = refused(capsys, "--config", config)
    assert "takes runs/base_small_s1/test.de for a run of base and of base_small. Make it narrower" in said
    write(data / "c.yaml", [Path(config).read_text().replace("_s*", "_s[0-9]*")])
    run(capsys, "--config", config, "--out", "report")
    scores = report()["test_sets"][0]["scores"]
    assert [len(scores[name]["bleu"]["runs"]) for name in systems] == [1, 2]


def test_numbers_in_names_are_as_they_are_written(data, capsys):
    names = ["007", "0x10", "3.10", "1e5", ".inf", "2014", "12:30", "2024-01-01"]
    lines = ["systems: {007: 3.10, 0x10: 0x11, 1_000: .inf, 2: null}", "baselines: [1_000]", "notes: 1_000"]
    # A column may be called as a metric that is not there.
    lines += ["resamples: 1_00", "metrics: chrf", "columns: {007: {0x10: 1_000}, BLEU: {2: 31}}", "test_sets:"]
    lines += [f"  {name}: {{reference: test.de, outputs: {{007: base.txt, 0x10: good.txt}}}}" for name in names]
    run(capsys, "--config", str(write(data / "c.yaml", lines)), "--out", "report", "--skip-missing")
    content = report()
    assert content["labels"] == {"007": "3.10", "0x10": "0x11", "1_000": ".inf", "2": "2"}
    assert [one["name"] for one in content["test_sets"]] == names
    assert (content["baselines"], content["notes"], content["resamples"]) == (["1_000"], ["1_000"], 100)
    assert content["columns"] == {"007": {"0x10": 1000}, "BLEU": {"2": 31}}  # facts are numbers


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


def test_notes_stand_below_the_tables(data, capsys):
    note = "Besides its mixer, <good> has --gate gelu (base: none)."
    notes = [note, "* Measured at 50% load."]
    shown = run(capsys, "--config", str(configure(data, notes=notes)), "--out", "report").out
    assert f"\n{notes[1]}\n" in shown
    assert f"\n{note}\n" in shown
    assert r"Besides its mixer, \<good\> has" in Path("report/report.md").read_text()
    latex = Path("report/report.tex").read_text()
    assert r"{Besides its mixer, \textless{}good\textgreater{} has -{}-gate gelu (base: none).}\par" in latex
    assert "\n{* Measured at 50\\% load.}\\par\n" in latex
    assert "<li>Besides its mixer, &lt;good&gt; has --gate gelu" in Path("report/report.html").read_text()
    assert report()["notes"] == notes


def test_a_report_takes_signatures_and_all_but_five_remarks(data, capsys):
    for number in range(1, 8):
        write(data / f"empty{number}.txt", ["", *Path("good.txt").read_text().splitlines()[1:]])
    arguments = ["--reference", "test.de", *SYSTEMS, *(f"empty{number}.txt" for number in range(1, 8))]
    everything = run(capsys, *arguments).out.splitlines()
    beside = run(capsys, *arguments, "--out", "report")
    remarks = [line for line in everything if line.startswith("note: ")]
    assert len(remarks) > 6
    signatures = [line for line in everything if "|seed:" in line]
    assert everything == [*beside.out.splitlines(), *remarks[5:], *signatures]
    assert f"report: report/report.html has {len(remarks) - 5} more remarks and the signatures (also" in beside.err
    for line in remarks:
        assert line in Path("report/report.md").read_text()


def test_pictures_are_in_the_page(data, capsys):
    Path("curves.png").write_bytes(b"\x89PNG of <curves>")
    pictures = {"Learning <curves>": "curves.png"}
    run(capsys, "--config", str(configure(data, pictures=pictures)), "--out", "report")
    page = Path("report/report.html").read_text()
    (content,) = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="Learning &lt;curves&gt;">', page)
    assert base64.b64decode(content) == b"\x89PNG of <curves>"
    Path("curves.png").unlink()
    run(capsys, "--config", str(configure(data, pictures={})), "--out", "report")
    assert "<img" not in Path("report/report.html").read_text()
