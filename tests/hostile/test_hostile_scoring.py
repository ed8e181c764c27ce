"""posnet-score and other readers of text, used carelessly and with hostile text."""

import csv
import shlex
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from posnet_eval.statistics import cache
from posnet_fairseq.inference.translation import BLANK
from posnet_fairseq.inference.translator import Translator
from posnet_fairseq.runs.compare import show_samples
from posnet_fairseq.shared.errors import visible
from support import commands
from support.hostile import Row, play, table, then, write

KEPT = ("cache", "cache/*", "cache/*/*")
REPORT = ("report", "report/report.*", "report/segments.tsv")
SCORE = "posnet-score --workers 1 --resamples 40 --reference text/test.yy --system a=text/a"
PLAN = "posnet-score --workers 1 --config plan.yaml"
SETS = "test_sets: {t: {reference: text/test.yy, outputs: {a: text/a}}}\nresamples: 40\n"
ESCAPES = ("\x1b", "\x9b", "\x07", "\u202e", "\r")


def outputs(folder):
    """An output of the test set, all but right."""
    reference = (folder / "text/test.yy").read_text().split("\n")[:-1]
    (folder / "text/a").write_text("".join(f"{line} {line[:2]}\n" for line in reference))


def output(change):
    """What writes an output that differs from the usual one: a function of its lines."""

    def make(folder):
        outputs(folder)
        lines = change((folder / "text/a").read_text().split("\n")[:-1])
        (folder / "text/a").write_bytes("".join(f"{line}\n" for line in lines).encode())

    return make


def replaced(number, text):
    """What puts another line in place of one."""
    return output(lambda lines: [*lines[:number], text, *lines[number + 1 :]])


def log(lines):
    """What fairseq-interactive prints."""
    text = ["2026-01-01 | INFO | fairseq_cli.interactive | loading"]
    for number, line in enumerate(lines):
        text += [f"S-{number}\tx", f"H-{number}\t-0.5\t{line}", f"D-{number}\t-0.5\t{line}", f"P-{number}\t-0.1 -0.2"]
    return text


def scored(row, says, **more):
    """A row that scores and leaves its cache."""
    return Row(row, more.pop("command", SCORE), says, 0, makes=(*KEPT, *REPORT), **more)


def refused(row, says, command=SCORE, before=outputs, **more):
    """A row that is refused before anything is computed; the cache may have been made."""
    return Row(row, command, says, before=before, makes=KEPT, **more)


def formulas(folder):
    rows = list(csv.reader((folder / "report/report.csv").read_text().splitlines()))
    header, (row, *_) = rows[0], rows[1:]
    cells = dict(zip(header, row, strict=True))
    assert cells["label"] == "'=cmd|' /C calc'!A0"
    assert cells["'+title"] == "'@SUM(1)"
    assert cells["change"] == "-3.2", "a number stays a number"
    assert cells["unit"] == "'-3.2M"
    assert float(cells["score"]) > 0


FORMULAS = (
    "systems: {a: \"=cmd|' /C calc'!A0\"}\n"
    'columns: {"+title": {a: "@SUM(1)"}, change: {a: -3.2}, unit: {a: "-3.2M"}}\n' + SETS
)


def odd_labels(folder):
    markdown, latex = ((folder / f"report/report.{end}").read_text() for end in ("md", "tex"))
    assert r"\| \`x\` \\ \$y\$ \&lt; \<b\>" in markdown
    assert r"\textbar{} \textasciigrave{}x\textasciigrave{} \textbackslash{} \$y\$ \&lt;" in latex
    assert (
        "<b>"
        not in (folder / "report/report.html").read_text().partition("<h3>Scores</h3>")[2].partition("&lt;b")[0][-200:]
    )


def no_escapes(folder):
    for name in ("html", "md", "tex"):
        text = (folder / f"report/report.{name}").read_text()
        assert not any(sign in text for sign in ("\x1b", "\x07", "\r")), name


def locked(folder):
    """A cache that another program holds for itself; it lets go when it is forgotten."""
    (folder / "cache/posnet").mkdir(parents=True)
    held.append(sqlite3.connect(folder / "cache/posnet/scores.sqlite", check_same_thread=False))
    held[-1].execute("BEGIN EXCLUSIVE")


held = []


def other_columns(folder):
    """A cache of another version."""
    (folder / "cache/posnet").mkdir(parents=True)
    connection = sqlite3.connect(folder / "cache/posnet/scores.sqlite")
    connection.execute("CREATE TABLE statistics (a, b)")
    connection.close()


TRANSLATE = "posnet-translate model.pt --cpu --beam 1 --max-len-b 5 --input in"
ROWS = [
    scored("as it should be", r"a +\d+\.\d ±", before=outputs),
    # empty lines, bytes that are no text, what ends lines
    *(
        scored(f"a line of U+{ord(sign):04X}", r"note: a on test: 1 line is empty \(3\)", before=replaced(2, sign * 2))
        for sign in "\u00ad\ufeff\u3164"
    ),
    scored("what ends lines elsewhere", "test, yy, 12 lines", before=replaced(2, "b1\u2028b\x0bb\x85b4\rb5 \ufeffb6")),
    refused("a NUL byte", r"text/a has a NUL byte in line 4, so it is no text in UTF-8", before=replaced(3, "b1\0")),
    # logs of fairseq
    scored("a line as fairseq's in plain text", "test, yy, 12 lines", before=replaced(5, "H-0\t-0.5\tfoo")),
    scored("a log", r"a +\d+\.\d ±", before=output(log)),
    refused(
        "a log that ends in its last translation", r"text/a is a log of fairseq's that is cut short: .* sentence 11",
        before=output(lambda lines: log(lines)[:-1]),
    ),
    # numbers
    scored("a huge seed", r"seed:10{30}\|", before=outputs, command=f"{SCORE} --seed {10**30}"),
    # what reports and terminals are given
    scored(
        "formulas", "label|=cmd", command=f"{PLAN} --out report", before=then(outputs, write("plan.yaml", FORMULAS)),
        after=formulas,
    ),
    scored(
        "labels of other languages", "note|BLEU", command=f"{PLAN} --out report",
        before=then(outputs, write("plan.yaml", "systems: {a: '| `x` \\ $y$ &lt; <b>'}\n" + SETS)), after=odd_labels,
    ),
    scored(
        "control characters in a path", r"missing: b on test: there is no text/\\x1b\]0;x\\x07",
        command=f"{SCORE} b=text/\x1b]0;x\x07 --skip-missing --out report", before=outputs, after=no_escapes,
    ),
    # configuration files
    refused(
        "a Python object", "is not YAML in line 1", PLAN,
        then(outputs, write("plan.yaml", "systems: !!python/object/apply:os.system [touch hacked]")),
    ),
    # the cache
    refused(
        "a cache of another version", r"no such column.*Choose another place with --cache",
        before=then(outputs, other_columns),
    ),
    refused(
        "a cache that others have locked", "database is locked. Choose another place with --cache",
        f"{SCORE} --cache cache/posnet/scores.sqlite",
        then(outputs, locked),
    ),
    # other readers of text
    Row(
        "lines that show nothing to translate", f"{TRANSLATE} --output out", "posnet-translate: 2 sentences", 0,
        before=write("in", "a1 a2\n\u200b\n\u00ad \ufeff\n\na1\u2028a2 \r a3\n"), makes=("out",),
        after=lambda folder: (folder / "out").read_text().split("\n")[1:4] == ["", "", ""] or pytest.fail("not empty"),
    ),
]  # fmt: skip


@table(ROWS)
def test_row(row, folder, monkeypatch, capfd):
    monkeypatch.setattr(cache, "PATIENCE", 0.1)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("COLUMNS", "140")
    play(row, folder, monkeypatch, capfd)
    while held:
        held.pop().close()
    assert not (folder / "hacked").exists()


@pytest.mark.parametrize("sign", ESCAPES)
def test_control_characters_become_escapes(sign):
    assert not set(ESCAPES) & set(visible(f"a{sign}b\tc\n"))
    assert visible("Zeile\tä 我 \u200d é\n") == "Zeile\tä 我 \u200d é\n"


def test_translations_for_a_terminal_are_harmless(folder, monkeypatch, capfd):
    """A file or a pipe gets them as they are: they are data."""
    monkeypatch.chdir(folder)
    escaping = [replace(BLANK, text="b\x1b[2J\u202e")]
    monkeypatch.setattr(Translator, "translate", lambda self, batch: [escaping] * len(batch.sources))
    (folder / "in").write_text("a1\n")
    printed = {}
    for terminal in (True, False):
        with monkeypatch.context() as patch, open(folder / "printed", "w+") as file:
            file.isatty = lambda terminal=terminal: terminal
            patch.setattr("sys.stdout", file)
            commands.run_program(monkeypatch, *shlex.split(TRANSLATE))
            file.seek(0)
            printed[terminal] = file.read()
    assert printed == {True: "b\\x1b[2J\\u202e\n", False: "b\x1b[2J\u202e\n"}


def test_samples_for_a_terminal_are_harmless(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    replaced(2, "b\x1b[2J[b] b\x9b b\u202e b")(folder)
    (folder / "text/test.xx").write_text("a a a a\n" * 12)
    (folder / "plan.yaml").write_text(
        "systems: [a]\ntest_sets: {t: {source: text/test.xx, reference: text/test.yy, outputs: {a: text/a}}}\n"
    )
    show_samples(Path("plan.yaml"))
    said = capsys.readouterr().out
    assert "b\\x1b[2J[b] b\\x9b b\\u202e b" in said
    assert not set(ESCAPES) & set(said)
