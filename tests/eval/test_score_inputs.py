"""posnet-score with logs, test sets of sacreBLEU and bad files, which are all reported before anything is scored."""

import contextlib
from pathlib import Path

import pytest

from posnet_eval.inputs.loading import load, read_output
from posnet_eval.inputs.plan import plan_of_one_test_set
from posnet_fairseq.shared.errors import UsageError
from support.made_up import sacrebleu_test_set
from support.scoring import CONFIG, FILES, SIZE, SYSTEMS, USUAL, configure, refused, report, run, write

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
    with pytest.raises(UsageError, match=r"without a translation of sentence 1 \(counted from 0\).*multiple 1"):
        read_output(log)
    log.write_text(LOG + LOG)
    with pytest.raises(UsageError, match="holds sentence 1 of two runs"):
        read_output(log)
    log.write_text("H-Milch\t0\tist Text\n")
    assert read_output(log) == ["H-Milch\t0\tist Text"]


@pytest.mark.parametrize("form", ["D-{number}\t-0.5\t{line}", "{line}"])
@pytest.mark.parametrize("cut", [lambda line: line.replace("e", "e@@ "), lambda line: "▁" + line.replace(" ", " ▁")])
def test_an_output_in_subwords_is_refused(data, capsys, form, cut):
    lines = map(cut, Path("base.txt").read_text().splitlines())
    write(data / "pieces", [form.format(number=number, line=line) for number, line in enumerate(lines)])
    said = refused(capsys, "--reference", "test.de", "--system", "good.txt", "pieces", "--out", "report")
    assert "system pieces: pieces is split into subwords" in said
    assert "--remove-bpe" in said
    assert "system good" not in said
    assert not Path("report").exists()
    first, *others = Path("test.de").read_text().splitlines()
    write(data / "test.de", [f"{first} diff@@ ", *others])  # a mark in the text itself
    assert refused(capsys, "--reference", "test.de", "--system", "good.txt", "pieces") == said


def test_a_reference_in_subwords_is_refused(data, capsys):
    write(data / "test.de", [line.replace("e", "e@@ ") for line in Path("test.de").read_text().splitlines()])
    said = refused(capsys, *USUAL)
    assert said.count("reference test.de is split into subwords") == 1
    assert "system" not in said


# --- sacreBLEU's test sets


def test_a_test_set_of_sacrebleus(data, capsys, monkeypatch):
    sacrebleu_test_set(monkeypatch, "wmt14/full", "en-de", data / "sets", Path("test.en"), Path("test.de"))
    run(capsys, "-t", "wmt14/full", "-l", "en-de", "--system", "base.txt", "--out", "report")
    (test_set,) = report()["test_sets"]
    assert (test_set["name"], test_set["size"]) == ("wmt14/full", SIZE)
    assert "has no languages en-it. Give --language-pair: cs-en, de-en, en-cs" in refused(
        capsys, "-t", "wmt14/full", "-l", "en-it", "--system", "base.txt"
    )
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


# --- other formats


# SGML and compressed files: tests/text/test_plain_text.py, read by the function that refuses this.
@pytest.mark.parametrize("name", ["test.en", "test.de", "good.txt"])
def test_a_table_is_refused(data, capsys, name):
    write(data / name, [f"{line}\t0.5" for line in Path(name).read_text().splitlines()])
    assert f"{name} is a table: each line has a tab." in refused(capsys, *USUAL)


def test_annotated_translations_are_scored_by_their_text(data, capsys):
    """As outputs and as references."""
    expected = run(capsys, *USUAL, "--json").out
    for name in ("good.txt", "test.de"):
        lines = Path(name).read_text().splitlines()
        write(data / name, [f"{number} ||| {line} ||| -0.250000" for number, line in enumerate(lines)])
    assert run(capsys, *USUAL, "--json").out == expected


# --- bad files: everything is said at once, and nothing is scored


def test_line_counts_differ(data, capsys):
    lines = Path("good.txt").read_text().splitlines()
    write(data / "good.txt", [*lines[:20], *lines[21:]])
    write(data / "other.txt", [*Path("other.txt").read_text().splitlines(), "one more"])
    said = refused(capsys, *USUAL)
    assert "nothing was scored" in said
    assert "system good: good.txt has 59 lines, the reference 60; line 21 is the first that seems out of step" in said
    assert "system other: other.txt has 61 lines, the reference 60; line 61 is" in said


def test_a_line_without_a_reference(data, comet_kiwi, capsys, monkeypatch):
    lines = Path("test.de").read_text().splitlines()
    write(data / "one.de", [*lines[:6], "", *lines[7:]])
    write(data / "two.de", ["", *lines[1:6], " ", *lines[7:]])
    arguments = "--reference", "one.de", "two.de", "--system", "good.txt"
    said = refused(capsys, *arguments, "--metrics", "bleu")
    assert "1 line is empty in all references of one, the first is line 7, so this line has no reference. Write" in said
    alone = "--source", "test.en", "--metrics", "comet-kiwi", "--comet-kiwi-model", str(comet_kiwi), "--cpu"
    assert "COMETKiwi" in run(capsys, *arguments, *alone).out, "it reads no reference"
    found = [tuple((data / name).read_text().splitlines()) for name in ("test.en", "one.de", "two.de")]
    monkeypatch.setattr("posnet_eval.inputs.loading.read_test_set", lambda *_: (found[0], tuple(found[1:])))
    said = refused(capsys, "-t", "wmt14/full", "-l", "en-de", "--system", "good.txt")
    assert "1 line is empty in all references of wmt14/full, " in said
    assert "Give files without such lines by --source and --reference" in said
    write(data / "two.de", ["", *lines[1:6], " ", *lines[7:-1]])
    assert "empty in all" not in refused(capsys, *arguments), "these lines need not belong together"
    assert "BLEU" in run(capsys, "--reference", "one.de", *arguments[3:]).out, "of a single reference it is a reference"


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
    assert "different" not in table + shown.out  # nothing was compared with the baseline that is missing
    config = configure(
        data, test_sets=CONFIG["test_sets"] | {"late": {"reference": "test.de", "outputs": "late/{system}"}}
    )
    write(data / "base.txt", Path("good.txt").read_text().splitlines())
    write(data / "other.txt", Path("good.txt").read_text().splitlines())
    assert (
        "missing: gLinearNet & co on late"
        in run(capsys, "--config", str(config), "--skip-missing", "--out", "report").out
    )
    assert [len(one["scores"]) for one in report()["test_sets"]] == [3, 3, 0]


def test_groups(data, capsys):
    """A group has the scores of its lines alone, means over runs."""
    names = ["domain 10" if line % 3 else "domain 2 " for line in range(SIZE)]
    systems = ("--system", "base=base.txt,other.txt", "good=good.txt")
    usual = ("--source", "test.en", "--reference", "test.de", *systems, "--resamples", "50", "--out", "report")
    write(data / "groups", names)
    run(capsys, *usual, "--groups", "groups")
    found = report()["test_sets"][0]["by_group"]
    assert [(group["label"], group["size"]) for group in found] == [("domain 2", 20), ("domain 10", 40)]
    for group in found:
        chosen = [line for line, name in enumerate(names) if name.strip() == group["label"]]
        for file in ("test.en", "test.de", "base.txt", "good.txt", "other.txt"):
            lines = (data / file).read_text().splitlines()
            write(data / "alone" / file, [lines[line] for line in chosen])
        with contextlib.chdir(data / "alone"):
            run(capsys, *usual)
            scores = report()["test_sets"][0]["scores"]
        assert group["scores"] == {
            system: {metric: pytest.approx(score["value"], abs=1e-9) for metric, score in of.items()}
            for system, of in scores.items()
        }
    assert "Scores by group in numbers" in Path("report/report.html").read_text()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            ["news"] * (SIZE - 1),
            "groups groups: 59 lines. Give the name of a group, in visible characters, for each of",
        ),
        (["news"] * (SIZE - 1) + [" "], "groups groups: no name, or invisible characters, in line 60. Give"),
        ([f"{line}" for line in range(SIZE)], "groups groups: 60 groups. Give"),
    ],
)
def test_mistakes_in_groups(data, capsys, names, expected):
    write(data / "groups", names)
    said = refused(capsys, *USUAL, "--groups", "groups", "--json")
    assert expected in said
    assert "of the 60 lines of the reference, and 20 groups at most." in said


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--reference", "test.de"), "error: --system: give systems as NAME=FILE"),
        (("--reference", "test.de", "--system", "x=a", "x=b"), "--system x=a x=b: give systems as NAME=FILE, or"),
        (SYSTEMS, "test set test: give either --reference, --source (alone for comet-kiwi) or both, or --test-set"),
        ((*USUAL, "--baseline", "base", "--baseline2", "base"), "baselines base, base: choose from base, good, other;"),
        (("--config", "x.yaml", "--reference", "a", "--groups", "b", *SYSTEMS, "--json"),
         "--reference, --system, --groups beside --config"),
        ((*USUAL, "--latex-intervals"), "--latex-intervals: the LaTeX table is in the report. Add --out FOLDER."),
        ((*USUAL, "--groups", "test.de"), "--groups: scores of groups are in the report. Add --out FOLDER, or --json."),
        ((*USUAL, "--tokenize", "moses"), "tokenizer moses: choose one of sacreBLEU's, none, zh, 13a"),
    ],
)  # fmt: skip
def test_mistakes_on_the_command_line(data, capsys, arguments, expected):
    assert expected in refused(capsys, *arguments)


CHINESE, JAPANESE, KOREAN = ["我们今天去看GitHub。", "他说你好。"], ["今日は天気がいい。"], ["오늘은 날씨가 좋다"]
SOUTHEAST = {"th": "วันนี้อากาศดี", "lao_Laoo": "ມື້ນີ້ອາກາດດີ", "khm": "ថ្ងៃនេះអាកាសធាតុល្អ", "my": "ဒီနေ့ ရာသီဥတုသာယာတယ်။"}
UNSPLIT = "whose words are not split by BLEU's tokenizer 13a. Give the pair of languages (--language-pair; "


@pytest.mark.parametrize(
    ("lines", "arguments", "expected"),
    [
        *((CHINESE, ("-l", pair), "tok:zh") for pair in ("en-zho", "eng_Latn-zho_Hans", "en-cmn", "pt-BR-zh-TW")),
        (CHINESE, ("--metrics", "ter", "-l", "eng-zho"), "asian:yes"),
        (CHINESE, ("-l", "en-de"), "as en-zh or en-ja, or --tokenize: zh, ja-mecab, flores200, "),
        (CHINESE, ("--tokenize", "none", "-lc"), "case:lc|eff:no|tok:none"),
        (CHINESE, ("--tokenize", "zh", "--metrics", "ter"), "by TER. Give the pair of languages (--language-pair"),
        (JAPANESE, ("-l", "en-zh"), "looks Japanese"),
        (JAPANESE, ("-l", "eng-jpn", "--metrics", "ter"), "asian:yes"),
        (KOREAN, (), "looks Korean"),
        *(([line], ("-l", f"en-{code}"), "tok:char") for code, line in SOUTHEAST.items()),
        *(([line], (), UNSPLIT) for line in SOUTHEAST.values()),
        ([SOUTHEAST["th"]], ("-l", "en-th"), "BLEU counts characters: sacreBLEU has no tokenizer of words for th"),
        (
            [SOUTHEAST["th"]],
            ("-l", "en-my"),
            "looks Thai, not my. Give the pair of languages",
        ),
        ([SOUTHEAST["th"]], ("-l", "en-th", "--tokenize", "zh"), "BLEU's tokenizer zh"),
        ([SOUTHEAST["th"]], ("-l", "en-th", "--tokenize", "char"), "tok:char"),
        ([SOUTHEAST["th"]], ("-l", "en-th", "--metrics", "chrf,ter"), "by TER. Give --metrics without ter."),
        ([SOUTHEAST["th"]], ("-l", "en-th", "--metrics", "chrf"), "chrF: "),
    ],
)
def test_text_without_spaces(data, capsys, lines, arguments, expected):
    """It is split by a tokenizer of its language, or refused: each line would be a word, and BLEU 0."""
    write(data / "reference", lines * 6)
    write(data / "output", lines * 6)
    arguments = ("--reference", "reference", "--system", "output", *arguments)
    is_scored = expected.startswith(("case:", "tok:", "asian:", "chrF", "BLEU counts"))
    said = run(capsys, *arguments).out if is_scored else refused(capsys, *arguments)
    assert expected in said


def test_the_language_of_a_source_without_references(data):
    sources = data / "test.en"
    (found,) = load(plan_of_one_test_set({"a": (data / "good.txt",)}, (), sources, None, None, None))
    assert found.languages == ("en", "")


@pytest.mark.parametrize(
    ("name", "lines", "expected"),
    [
        ("test.my", ["Das ist mein Text."], "\ntest, 12 lines\n"),
        ("test.my", [SOUTHEAST["my"]], "\ntest, my, 12 lines\n"),
        ("test.zh", [CHINESE[0], *["OK"] * 5], "|tok:zh|"),  # mostly, not entirely, in other letters
        ("test.zh", ["OK"], "|tok:13a|"),
        ("test.my", [SOUTHEAST["th"]], "looks Thai, whose words are not split by BLEU's tokenizer 13a. Give the pair"),
    ],
)
def test_an_ending_that_is_not_the_language(data, capsys, name, lines, expected):
    """Of a reference in letters that the language of its ending has not, nothing is derived from the ending."""
    for file in (name, "output"):
        write(data / file, lines * (12 // len(lines)))
    arguments = ("--reference", name, "--system", "output")
    said = refused(capsys, *arguments) if "looks" in expected else "\n" + run(capsys, *arguments).out
    assert expected in said


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
    Path("one.de").rename("wider_than_the_table.de")
    shown = run(capsys, "--reference", "wider_than_the_table.de", "--system", "a.txt", "--metrics", "BLEU")
    assert "wider_than_the_table, de, 1 line\n" in shown.out
