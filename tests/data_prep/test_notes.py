"""What a corpus hides: it is counted and noted, and the text stays as it is."""

import itertools
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from posnet_data_prep import prepare
from posnet_data_prep.sources import shifts
from posnet_data_prep.sources.oddities import Oddities
from posnet_data_prep.sources.shifts import ShiftDetector
from posnet_fairseq.text.card import DatasetCard
from support import documents
from support.commands import ROOT
from support.made_up import text, translated
from support.markup import sgml
from support.scoring import write

SOURCES = text(120)
PAIRS = [(source, target.title()) for source, target in zip(SOURCES, translated(SOURCES), strict=True)]


def write_pairs(folder, name, pairs):
    return [write(folder / f"{name}.{tag}", [pair[side] for pair in pairs]) for side, tag in enumerate(("en", "de"))]


def notes_of(folder, *arguments, command="corpus"):
    """The notes of a dataset, without those on its vocabulary."""
    options = ("--pieces", "60", "--workers", "1", "--out", folder / "data")
    options += ("--max-ratio", "99") if command == "corpus" else ()
    prepare.main([command, *map(str, (*options, *arguments))])
    return [note for note in DatasetCard.read(folder / "data").notes if "could be learned" not in note]


def prepared(folder, pairs, *options, **others):
    """The notes of sentence pairs, with sets `others`, else with a twentieth for validation."""
    sets = {"train": pairs, **others}
    files = [word for name, of_set in sets.items() for word in (f"--{name}", *write_pairs(folder, name, of_set))]
    return notes_of(folder, *files, *(() if "valid" in others else ("--valid-every", "20")), *options)


def test_a_clean_corpus_has_no_notes(tmp_path):
    assert prepared(tmp_path, PAIRS[20:], valid=PAIRS[:10], test=PAIRS[10:20]) == []


def test_swapped_sides_are_noted(tmp_path):
    def other_way(pairs):
        return [(target, source) for source, target in pairs]

    swapped = "sets whose sides look swapped, compared with the training set: "
    assert prepared(tmp_path / "1", PAIRS[20:], valid=PAIRS[:10], test=other_way(PAIRS[10:20])) == [f"{swapped}test"]
    notes = prepared(tmp_path / "2", other_way(PAIRS[20:]), valid=PAIRS[:10], test=PAIRS[10:20])
    assert notes == [f"{swapped}valid, test"]


def shift_of(pairs):
    detector = ShiftDetector()
    for pair in pairs:
        detector.add(*pair)
    return detector.shift()


def numbered(lines):
    """Lines of which some have a number, as translations have it, too."""
    return [f"{line} ({number:,})?" if number % 3 == 0 else line for number, line in enumerate(lines)]


def one_token(lines):
    return [line.split()[0] for line in lines]


@pytest.mark.parametrize("block", [7, 100, shifts.BLOCK])
@pytest.mark.parametrize("offset", [-3, -1, 1, 2])
def test_a_shift_is_found_wherever_blocks_of_lines_end(monkeypatch, block, offset):
    monkeypatch.setattr(shifts, "BLOCK", block)
    sources = text(600)
    targets = translated(sources)
    moved = targets[:300] + (text(offset, seed=5) if offset > 0 else []) + targets[300 + max(0, -offset) :]
    size = min(len(moved), len(sources))
    found = shift_of(zip(sources[:size], moved[:size], strict=True))
    assert found.offset == offset
    assert abs(found.first - 301) <= 20
    assert found.last >= size - 20


@pytest.mark.parametrize("form", [list, numbered, one_token])
@pytest.mark.parametrize("size", [0, 1, 2, 5, 30, 3000])
def test_no_shift_is_found_where_lines_belong_together(form, size):
    sources = text(size)
    assert shift_of(zip(form(sources), form(translated(sources)), strict=True)) is None


@pytest.mark.parametrize("form", [list, numbered, one_token])
def test_a_whole_text_may_be_shifted(form):
    sources = text(2000)
    targets = form(translated(sources))
    found = shift_of(zip(form(sources)[:-1], targets[1:], strict=True))
    assert found.offset == -1
    assert found.first <= 20
    assert found.last >= 1980


def test_shuffled_lines_are_not_taken_for_shifted_ones():
    sources = text(3000)
    targets = translated(sources)
    random.Random(1).shuffle(targets)
    assert shift_of(zip(sources, targets, strict=True)) is None


@pytest.mark.parametrize("offset", [-3, 1])
def test_blocks_change_nothing(monkeypatch, offset):
    """Of lines of one length: else the ratio of lengths is that of the lines so far."""
    sources = [f"{number * 7919 % 1000:03}{'?!:'[number % 3]}" for number in range(60)]
    targets = sources[-offset:] + sources[:-offset]
    found = []
    for block in (1, 4, 7, 100):
        monkeypatch.setattr(shifts, "BLOCK", block)
        detector = ShiftDetector()
        for pair in zip(sources, targets, strict=True):
            detector.add(*pair)
        found.append((detector.shift(), [run.most for run in detector._runs]))
    assert found[-1][0].offset == offset
    assert all(shift == found[-1][0] for shift, _ in found)
    assert all(most == pytest.approx(found[-1][1]) for _, most in found)


def test_the_sides_may_be_of_very_different_length():
    sources = text(400)
    targets = [line[::4] for line in sources]
    assert shift_of(zip(sources, targets, strict=True)) is None
    assert shift_of(zip(sources[:-1], targets[1:], strict=True)).offset == -1


@pytest.mark.parametrize(
    "script",
    [str.maketrans("0123456789?", "٠١٢٣٤٥٦٧٨٩؟"), str.maketrans("0123456789?:!", "０１２３４５６７８９？：！")],
    ids=["Arabic", "full width"],
)
@pytest.mark.parametrize("form", ["Line {n}", "Line{mark}"])
def test_digits_and_marks_count_in_every_script(script, form):
    """Lines of one length, whose numbers or marks alone tell them apart."""
    rng = random.Random(1)
    western = [form.format(n=rng.randrange(1000, 10000), mark=rng.choice("?:!")) for _ in range(200)]
    other = [line.translate(script) for line in western]
    assert shift_of(zip(western, other, strict=True)) is None
    assert shift_of(zip(western[:-1], other[1:], strict=True)).offset == -1


def test_a_shift_is_noted_by_the_names_of_files(tmp_path):
    """Here line 60 of the target is missing, and there is one too many at the end."""
    moved = [pair[1] for pair in PAIRS[:59] + PAIRS[60:]] + ["Ende"]
    pairs = list(zip(SOURCES, moved, strict=True))
    (note,) = prepared(tmp_path, pairs)
    assert note.startswith("line 6")
    assert " of train.en looks shifted: it seems to belong to line " in note
    assert " of train.de, and so on to about line 1" in note
    table = write(tmp_path / "my.tsv", ["\t".join(pair) for pair in pairs])
    options = ("-s", "en", "-t", "de", "--valid-every", "20")
    (note,) = notes_of(tmp_path, "--train", table, *options)
    assert " of the first column of my.tsv looks shifted: " in note
    assert " of the second column of my.tsv, and so on" in note


def test_repeated_pairs_are_counted_and_dropped(tmp_path, capsys):
    """Wherever they are; only one side may be the same."""
    half = [(PAIRS[0][0], "Anders"), ("Other", PAIRS[0][1])]
    pairs = [*PAIRS, *PAIRS[:7], *half, PAIRS[0]]
    options = {"valid": PAIRS[:1]}
    assert prepared(tmp_path, pairs, **options)[0] == (
        "8 of 130 training pairs repeat an earlier one; --drop-repeated leaves them out"
    )
    notes = prepared(tmp_path, pairs, "--drop-repeated", **options)
    assert not any("repeat" in note for note in notes)
    assert (tmp_path / "data/train.en").read_text().splitlines() == [*SOURCES, *(pair[0] for pair in half)]
    assert DatasetCard.read(tmp_path / "data").dropped == {"repeated": 8}
    assert "  8  equal to an earlier pair (--drop-repeated)\n" in capsys.readouterr().err


def test_pairs_of_the_same_tokens_repeat(tmp_path):
    """The note counts what --drop-repeated drops: here pairs that differ in case and spaces only."""
    pairs = [*PAIRS, (f"  {PAIRS[0][0].capitalize()}", PAIRS[0][1].lower())]
    (note,) = prepared(tmp_path, pairs, "--lowercase", valid=[("new", "neu")])
    assert note == "1 of 121 training pairs repeat an earlier one; --drop-repeated leaves them out"
    assert prepared(tmp_path, pairs, "--lowercase", "--drop-repeated", valid=[("new", "neu")]) == []


def test_repeated_pairs_are_dropped_before_every_nth_is_taken(tmp_path):
    """So the validation set has none of the training set."""
    notes = prepared(tmp_path, [pair for pair in PAIRS for _ in range(2)], "--drop-repeated")
    assert not any("training" in note for note in notes)


def test_sources_of_test_sets_in_training(tmp_path):
    test = [
        PAIRS[3],
        ("new one", "neu"),
        (f"„{PAIRS[4][0].upper()}!“", PAIRS[4][1]),  # other case and punctuation
        (PAIRS[5][0], "eine andere Übersetzung"),
        ("...", "..."),
    ]
    pairs = [*PAIRS, ("!", "!")]
    notes = prepared(tmp_path, pairs, valid=test[:1], test=test)
    assert notes == [
        "1 of 1 pairs of the valid set are also in the training set",
        "1 of 5 pairs of the test set are also in the training set",
        "pairs of the test set whose source is in the training set with another target, case or punctuation: 2 of 5, "
        f"such as line 3 of test.en, {test[2][0]!r}, and line 5 of train.en",
        "pairs that have equal sides: 1 train, 1 test",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Straße, É", "STRASSE é"),
        ("Кошка спит.", "кошка — спит"),
        ("“Curly” don’t", '"Curly" don\'t'),
        ("a_b c", "A B-C"),
    ],
)
def test_case_and_punctuation_of_any_script_are_left_out(tmp_path, one, other):
    note, *_ = prepared(tmp_path, [*PAIRS, (one, "x")], valid=[(other, "y")])
    assert note.startswith("pairs of the valid set whose source is in the training set")


def test_vowel_signs_are_no_punctuation(tmp_path):
    assert prepared(tmp_path, [*PAIRS, ("की", "x")], valid=[("का", "y")]) == []


def test_one_language(tmp_path):
    train, valid = write(tmp_path / "a", [*SOURCES, SOURCES[0], "", "A &amp; B"]), write(tmp_path / "b", ["x"])
    sets = ("--train", train, "--valid", valid, "--test", write(tmp_path / "c", [f"{SOURCES[1]}!", SOURCES[2]]))
    assert notes_of(tmp_path, *sets, command="text") == [
        "1 of 122 training lines repeat an earlier one",
        "1 of 2 lines of the test set are also in the training set",
        "lines of the test set whose text is in the training set with other case or punctuation: 1 of 2, such as line "
        f"1 of test.txt, {SOURCES[1] + '!'!r}, and line 2 of train.txt",
        "lines that have HTML entities: 1 train, such as line 123 of a: 'A &amp; B'",
    ]


ODD = {
    "HTML entities": ["Tom &amp; Jerry", "&nbsp;x", "&#8220;x", "x&#xE9;"],
    "UTF-8 read in another encoding": ["FranÃ§ais", "fÃ¼r", "itâ€™s", "5Â\xa0kg", "Ð¿Ñ€Ð¸", "ä½\xa0å¥½"],
    "characters U+FFFD, which stand for lost ones": ["M\ufffdller"],
    "control characters": ["a\x00b", "a\x07b", "é\x85", "a\rb"],
    "tags of HTML or XML": ["<b>x</b>", "a<br>b", "a<br />b", '<a href="x">', "</p>"],
}
NOT_ODD = [
    *("AT&T; R&D &c; a & b; &", "if a < b and c > d", "<file> or <name@x.org> <https://x.org>", "I <3 you", "a\tb"),
    *("DÉJÀ\xa0!", "CAFÉ», dit-il", "„Spaß“", "NÃO, SÃO", "3 ×\xa04", "passé…»", "Ângela", "¿Qué?", "ĐÃ ĐI", "\u200bx"),
]


@pytest.mark.parametrize(("kind", "line"), [(kind, line) for kind, lines in ODD.items() for line in lines])
def test_remains_of_other_formats(kind, line):
    oddities = Oddities()
    for each in ("fair", line, "fair", line):
        oddities.add(each)
    assert oddities.found == {kind: {"lines": 2, "number": 2, "text": repr(line)}}


@pytest.mark.parametrize("line", NOT_ODD)
def test_what_is_text_is_not_odd(line):
    oddities = Oddities()
    oddities.add(line)
    assert oddities.found == {}


def test_remains_are_noted_with_their_place(tmp_path, capsys):
    long = "x" * 40
    pairs = [*PAIRS, (f"{long} &quot; {long}", "a &lt; b"), ("good", "FranÃ§ais\x07")]
    notes = prepared(tmp_path, pairs, test=[("A &amp; B", "&amp; B")])
    shown = f"... '{'x' * 29} &quot; {'x' * 29}' ..."
    assert notes == [
        f"lines that have HTML entities: 2 train, 2 test, such as line 121 of train.en: {shown}",
        "lines that have UTF-8 read in another encoding: 1 train, such as line 122 of train.de: 'FranÃ§ais\\x07'",
        "lines that have control characters: 1 train, such as line 122 of train.de: 'FranÃ§ais\\x07'",
    ]
    assert f"note: {notes[0]}.\n" in capsys.readouterr().err
    assert "Ã§ais\x07\n" in (tmp_path / "data/train.de").read_text()


def test_segments_are_no_lines(tmp_path):
    """What is noted of SGML is found by the number of the segment."""
    shifted = [(one[0], later[1]) for one, later in itertools.pairwise(PAIRS)]
    shifted[2] = (f"{shifted[2][0]} \ufffd", shifted[2][1])
    files = [write(tmp_path / f"my.{tag}", sgml([pair[i] for pair in shifted])) for i, tag in enumerate(("en", "de"))]
    shift, odd = notes_of(tmp_path, "--train", *files, "--valid-every", "20")
    assert re.match(r"segment \d of my.en looks shifted: it seems to belong to segment \d of my.de, ", shift)
    assert "such as segment 3 of my.en: " in odd


SPOKEN = [(f'"{source}" she said', f'"{target}" sagte sie') for source, target in PAIRS[:30]]


def csv(column):
    return '"' + column.replace('"', '""') + '"'


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # quotation marks where they are needed, and everywhere
        (
            [*PAIRS[30:], *[(csv(source), csv(target)) for source, target in SPOKEN]],
            "my.tsv looks written as CSV: 30 of 120 lines have quotation marks around columns, such as line 91: ",
        ),
        (
            [(csv(source), csv(target)) for source, target in PAIRS],
            "my.tsv looks written as CSV: 120 of 120 lines have quotation marks around columns, such as line 1: ",
        ),
        ([*PAIRS[30:], *SPOKEN], None),
        ([*PAIRS[30:], *[(f'"{source}"', f'"{target}"') for source, target in PAIRS[:30]]], None),  # direct speech
        (
            [(f"{number / 7:.3f}", source) for number, source in enumerate(SOURCES)],
            "my.tsv has numbers only in its first column, as scores and identifiers are. Give the columns",
        ),
        ([*PAIRS, ("12", "zwölf"), ("13", "13")], None),
    ],
)
def test_tables_of_other_forms_are_noted(tmp_path, rows, expected):
    table = write(tmp_path / "my.tsv", map("\t".join, rows))
    notes = notes_of(tmp_path, *("--train", table, "-s", "en", "-t", "de", "--valid-every", "20"))
    notes = [note for note in notes if note.startswith("my.tsv")]
    assert len(notes) == bool(expected)
    assert all(note.startswith(expected) for note in notes)


def test_the_documented_command_writes_a_plain_table(tmp_path):
    """Also of columns with tabs and line ends, which posnet-prepare refuses with the advice to use it."""
    write(tmp_path / "my.tsv", ['"a ""b"" c"\td', '"e\tf"\t"g', 'h"', "i\tj"])
    (command,) = [each.text for each in documents.commands(ROOT / "docs/data.md") if "csv.reader" in each.text]
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONUTF8": "1"}
    subprocess.run(["bash", "-ec", command], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "plain.tsv").read_text() == 'a "b" c\td\ne f\tg h\ni\tj\n'


def test_notes_are_those_of_the_record(tmp_path):
    """The card of a dataset is made again from the stages, whose files may be gone."""
    prepared(tmp_path, [*PAIRS, ("a &amp; b", "c")])
    stages = tmp_path / "data/stages"
    counts = json.loads((stages / "read/stage.json").read_text())["counts"]["train"]
    assert counts["odd"] == {"HTML entities": {"lines": 1, "first": "line 121 of train.en: 'a &amp; b'"}}
