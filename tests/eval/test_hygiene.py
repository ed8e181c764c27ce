import unicodedata

import pytest

from posnet_eval.inputs.hygiene import first_misaligned_line, given_remarks, remarks
from support.made_up import text, translated

REFERENCE = text(40)


def found(output, reference=REFERENCE, sources=()):
    return {remark.text: remark.lines for remark in remarks("x", output, reference, sources)}


def test_a_fair_output_has_no_remarks():
    assert found(translated(REFERENCE)) == {}


@pytest.mark.parametrize(
    ("line", "reference", "expected"),
    [
        ("", "Haus", "1 line is empty"),
        ("дом у реки", "Haus am Fluss", "1 line is mostly in another script"),
        ("das Haus das Haus das Haus am Fluss", "Haus am Fluss", "1 line repeats a phrase 3 times or more"),
        ("Ha@@ us am Fluss", "Haus am Fluss", "1 line has subword marks"),
        ("▁Haus ▁am ▁Fluss", "Haus am Fluss", "1 line has subword marks"),
        ("das Haus amFluss", "das Haus am Fluss", "1 line differs from the reference by spaces only"),
        ("&quot;Haus&quot; am Fluss", '"Haus" am Fluss', "1 line has HTML entities"),
        ("Haus", "Haus am Fluss und noch ein Baum", "1 line is more than 3 times as long or as short as the reference"),
    ],
)
def test_odd_lines(line, reference, expected):
    ((said, lines),) = found([*translated(REFERENCE), line], [*REFERENCE, reference]).items()
    assert expected in said
    assert lines == (41,)


@pytest.mark.parametrize(
    ("line", "reference"),
    [
        ("sehr sehr sehr gut gelaufen heute", "sehr sehr sehr gut gelaufen"),  # as the reference has it
        ("&amp; heißt und", "&amp; steht für und"),
        ("GitHub 123", "GitHub 123"),
        ("Haus", "Haus am Fluss"),  # short lines may differ
    ],
)
def test_what_the_reference_has_is_not_odd(line, reference):
    assert found([*translated(REFERENCE), line], [*REFERENCE, reference]) == {}


def test_copies_of_the_source():
    sources = [f"source {number} of the house" for number in range(41)]
    output = [*translated(REFERENCE), sources[40]]
    assert found(output, [*REFERENCE, "Quelle"], sources) == {"1 line is a copy of the source": (41,)}
    # a name stays as it is
    assert found([*output[:40], "GitHub"], [*REFERENCE, "GitHub"], [*sources[:40], "GitHub"]) == {}


def test_what_the_source_has_is_not_odd_without_references():
    for line in ("&amp; heißt und", "▁Haus", "sehr sehr sehr gut"):
        assert remarks("x", [line], [], [line + " hier"]) == []
        assert len(remarks("x", [line], [], ["Quelle"])) == 1


def test_only_the_first_lines_are_listed():
    ((said, lines),) = found(["" for _ in range(1500)] + REFERENCE, text(1500) + REFERENCE).items()
    assert said == "1,500 lines are empty"
    assert lines == tuple(range(1, 11))


def test_whole_outputs():
    assert list(found(REFERENCE)) == ["identical to the reference"]
    (said,) = found(translated(text(40, seed=7)))
    assert said.startswith("translations do not match their references: ")
    (said,) = found([f"{line} ." for line in translated(REFERENCE)])
    assert said.startswith("40 lines end in a space and a period, so")


def in_form(form):
    return [unicodedata.normalize(form, f"Die {line} fährt übers ﬁn ½.") for line in translated(REFERENCE)]


@pytest.mark.parametrize(
    ("output", "reference", "expected"),
    [
        (in_form("NFD"), in_form("NFC"), "40 lines are not in Unicode normal form NFC (reference: 0), so"),
        (in_form("NFC"), in_form("NFD"), "0 lines are not in Unicode normal form NFC (reference: 40), so"),
        (in_form("NFKC"), in_form("NFC"), "0 lines are not in Unicode normal form NFKC (reference: 40), so"),
        ([line.lower() for line in in_form("NFC")], in_form("NFC"), "40 lines are all in lower case (reference: 0)"),
        (in_form("NFC"), [line.upper() for line in in_form("NFC")], "0 lines are all in upper case (reference: 40)"),
    ],
)
def test_whole_outputs_in_another_form(output, reference, expected):
    (said,) = found(output, reference)
    assert said.startswith(expected)


def test_case_is_no_oddity_where_scores_ignore_it():
    lower = [line.lower() for line in in_form("NFC")]
    assert remarks("x", lower, in_form("NFC"), lowercase=True) == []


def test_references_and_source():
    gaps, spaced = ["", *REFERENCE[1:20], " ", *REFERENCE[21:]], [f"{line} ." for line in REFERENCE]
    split = [line.replace("e", "e@@ ") for line in REFERENCE]
    said = {remark.text: remark.lines for remark in given_remarks(gaps, [REFERENCE, gaps])}
    assert said == {
        "2 lines of the source are empty": (1, 21),
        "2 lines of reference 2 are empty and are not used": (1, 21),
    }
    said = [remark.text for remark in given_remarks(split, [spaced])]
    assert said == [
        f"{sum('e@@' in line for line in split)} lines in the source have subword marks; scores are for plain text",
        "40 lines in the reference end in a space and a period, so it looks tokenized",
    ]


def test_chinese_is_at_home_in_chinese():
    reference = ["我们今天去看看", "他说你好", "天气很好 GitHub"] * 10
    assert "mostly in another script" not in str(found(["我们去看", "他说好", "天气好"] * 10, reference))
    assert "10 lines are mostly in another script" in found(["我们去看", "он сказал да", "天气好"] * 10, reference)


@pytest.mark.parametrize("missing", [0, 7, 38, 39])
def test_where_a_line_is_missing(missing):
    output = translated(REFERENCE)
    del output[missing]
    assert abs(first_misaligned_line(output, REFERENCE) - (missing + 1)) <= 1


def test_where_lines_are_too_many():
    output = translated(REFERENCE)
    assert abs(first_misaligned_line([*output[:20], "ein", "paar", "mehr", *output[20:]], REFERENCE) - 21) <= 1
    assert first_misaligned_line([*output, "mehr"], REFERENCE) == 41
    assert first_misaligned_line(output[:25], REFERENCE) == 26
    assert first_misaligned_line([], REFERENCE) == 1
    assert first_misaligned_line(["a b c"] * 6, ["a b c"] * 5) == 6, "the last of equally good places"
