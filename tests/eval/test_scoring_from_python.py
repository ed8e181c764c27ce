"""posnet_eval.api.score: the scores of sacreBLEU, the results of posnet-score, errors that speak of arguments."""

import contextlib
import csv
import inspect
import json
import re
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU, CHRF, TER

from posnet_eval.api import score
from posnet_eval.inputs.plan import ROW_COLUMNS
from posnet_eval.report.publish import as_json
from posnet_eval.score import main, make_parser
from posnet_fairseq.shared.errors import UsageError
from support import documents
from support.made_up import text, translated
from support.scoring import SIZE, SYSTEMS, report, write

REFERENCE, SOURCE = text(SIZE), text(SIZE, seed=9)
OUTPUTS = {"base": translated(REFERENCE, 2), "good": translated(REFERENCE, 3), "other": translated(REFERENCE, 4)}
METRICS = ("bleu", "chrf", "ter")
GROUPS = ["news", "talks"] * (SIZE // 2)


@pytest.fixture(autouse=True)
def folder(data, monkeypatch):
    """A folder with the texts as files, and a cache of its own."""
    monkeypatch.setenv("COLUMNS", "80")
    write(data / "good.txt", OUTPUTS["good"])


def command(*arguments):
    """The content of report.json of posnet-score on the files, which then prints all without a report."""
    arguments = [*"--source test.en --reference test.de --workers 1 --resamples 100".split(), *arguments]
    with contextlib.redirect_stdout(None):
        main([*arguments, "--out", "report"])
    main([word for word in arguments if "groups" not in word])  # which only a report shows
    return report() | {"files": {}}


def test_lines_and_files_give_the_results_of_the_command(capsys):
    systems = "--system base=base.txt good=good.txt,other.txt --groups groups --test ar --trials 50".split()
    write(Path("groups"), GROUPS)
    expected = command(*systems, "--metrics", ",".join(METRICS), "--baseline", "good", "--baseline2", "base")
    printed = capsys.readouterr().out
    options = {"baseline": ("good", "base"), "resamples": 100, "test": "ar", "trials": 50}
    options["metrics"] = [name.upper() for name in METRICS]  # as in tables
    good, other = OUTPUTS["good"], OUTPUTS["other"]
    lines = score(
        {"base": OUTPUTS["base"], "good": [good, other]},
        REFERENCE,
        SOURCE,
        language_pair="en-de",
        groups=GROUPS,
        **options,
    )
    given = {"base": Path("base.txt"), "good": [good, Path("other.txt")]}
    files = score(given, Path("test.de"), Path("test.en"), groups=Path("groups"), **options)
    for result in (lines, files):
        assert json.loads(as_json(result)) == expected
        assert str(result) == "\n".join(line.rstrip() for line in printed.rstrip().split("\n"))
    assert "good  " in str(lines)
    assert {row["system"]: row["runs"] for row in lines.rows()} == {"base": 1, "good": 2}
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")


def test_lines_are_text_whatever_they_look_like():
    """Files of such lines are of other formats."""
    for line in ("<doc> a b c d", "<seg>a b c d</seg>", "a b\tc d", "a b c d ||| 0-0"):
        assert score([line] * 4, [line] * 4, metrics="bleu,chrf").rows()[0]["score"] == pytest.approx(100)


def test_empty_lines_of_one_of_several_references_are_none():
    """As None is in sacreBLEU."""
    gaps = [line if number % 3 else " " for number, line in enumerate(OUTPUTS["other"])]
    first = ["", *REFERENCE[1:-1], ""]
    second = [first[0] or OUTPUTS["other"][0], *gaps[1:-1], OUTPUTS["other"][-1]]
    theirs = [[line if line.strip() else None for line in lines] for lines in (first, second)]
    result = score(OUTPUTS["good"], [first, second], SOURCE, metrics=["bleu", "chrf", "chrf++", "ter"], resamples=100)
    (test_set,) = result.test_sets
    for info, metric in zip(test_set.metrics, (BLEU(), CHRF(), CHRF(word_order=2), TER()), strict=True):
        expected = metric.corpus_score(OUTPUTS["good"], theirs).score
        assert test_set.scores["system"][info.name].value == pytest.approx(expected, abs=1e-9)
        assert info.signature.replace("|bs:100|seed:12345", "") == str(metric.get_signature())
        assert info.signature.startswith("nrefs:var|")
    said = [remark.text for remark in test_set.remarks]
    assert said[:2] == [
        "2 lines of reference 1 are empty and are not used",
        "19 lines of reference 2 are empty and are not used",
    ]
    assert not any("as long or as short" in text for text in said), "compared with an empty line"


def test_rows_are_those_of_the_csv_and_of_a_data_frame():
    pandas = pytest.importorskip("pandas")
    command(*SYSTEMS, "--baseline2", "other")
    result = score(OUTPUTS, Path("test.de"), Path("test.en"), baseline=["base", "other"], resamples=100)
    found = list(csv.DictReader(Path("report/report.csv").read_text().splitlines()))
    assert [{key: "" if value is None else str(value) for key, value in row.items()} for row in result.rows()] == found
    table = pandas.DataFrame(result.rows())
    assert tuple(table.columns) == ROW_COLUMNS
    # base and other against each other, good against both
    assert len(table) == 2 * (1 + 2 + 1)
    good = table[(table.system == "good") & (table.metric == "BLEU") & (table.baseline == "base")]
    difference = result.test_sets[0].difference("good", "base", "bleu")
    assert good[["difference", "p", "mark"]].values.tolist() == [[difference.value, difference.p, difference.arrow]]


LINE = ["eine Zeile"]


@pytest.mark.parametrize(
    ("hypotheses", "options", "expected"),
    [
        ("eine Zeile", {}, "hypotheses: item 1 of 'eine Zeile' is no line of text. Give a pathlib.Path, or a sequence"),
        ({"a": [LINE, "x"]}, {}, "hypotheses of 'a': item 1 of (['eine Zeile'], 'x') is no line of text."),
        ({"a": LINE * 2, "b": [LINE, LINE * 3]}, {}, "system b, run 2 has 3 lines, the reference 1; line 2 is"),
        ({"a": Path("nowhere")}, {}, "there is no nowhere. Translate it, or leave it out with skip_missing."),
        (LINE, {"references": None}, "references, sources (alone for comet-kiwi) or both, or test_set"),
        (LINE, {"references": None, "test_set": "wmt14/full"}, "has no languages (none given). Give language_pair: "),
        (LINE, {"references": ["我们今天读这本书"]}, "Give the pair of languages (language_pair; "),
        (LINE, {"metrics": "comet"}, "COMET reads the source, of which test has none. Give sources."),
        (LINE, {"language_pair": ("en", "de")}, "language_pair ('en', 'de'): give a value of type str."),
        (LINE, {"sources": Path("a\0b")}, "sources: 'a\\x00b' is no path."),
        (LINE, {"groups": ["news"] * 2}, "the list of groups: 2 lines. Give the name of a group"),
        (LINE, {"metrics": "comet", "comet_model": Path("a/b/c"), "sources": LINE}, "Give comet_model a folder"),
        (LINE, {"lowercase": "no"}, "lowercase 'no': give a value of type bool."),
        (LINE, {"cache": 5}, "cache 5: give the path of a file."),
        (set(LINE), {}, "hypotheses: item 1 of {'eine Zeile'} is no line of text."),
        ({1: LINE, "1": LINE}, {}, "hypotheses: systems 1, 1: give each a name of its own."),
        (LINE, {"metrics": "bleu,rouge"}, "metrics bleu, rouge: choose from bleu, chrf"),
        (LINE, {"metric": "bleu"}, "score has no argument metric, it has metrics, baseline"),
        (LINE, {"test": "t"}, "test t: choose one of shift, bs, ar."),
        (LINE, {"resamples": "x"}, "resamples 'x': give a whole number."),
        (LINE, {"cached_only": True}, "Run without cached_only."),
        (LINE, {"cache": "/dev/null"}, "cache /dev/null: no regular file. Choose another place with cache;"),
        (LINE, {"metrics": "comet", "sources": LINE, "comet_model": "a/b/c"}, "Give comet_model a folder that holds"),
    ],
)  # fmt: skip
def test_errors_speak_of_arguments(hypotheses, options, expected):
    with pytest.raises(UsageError) as error:
        score(hypotheses, **{"references": LINE, **options})
    assert expected in str(error.value)
    assert "--" not in str(error.value)


def test_every_option_of_the_command_has_an_argument():
    """Except options of files and of output, which errors of score cannot mention."""
    options = {action.dest for action in make_parser()._actions}
    others = {"help", "config", "out", "json", "latex_intervals", "baseline2", "source", "reference", "system"}
    assert options - inspect.signature(score).parameters.keys() == others


def test_the_documented_example(capsys):
    for name in ("base", "other"):
        Path(f"{name}.txt").rename({"base": "base.de", "other": "rposnet.de"}[name])
    (example,) = documents.python("docs/scoring.md")
    names = {}
    exec(compile(example, "docs/scoring.md", "exec"), names)
    printed = capsys.readouterr().out
    assert str(names["result"]) in printed
    assert re.search(r"rposnet +BLEU", printed)
