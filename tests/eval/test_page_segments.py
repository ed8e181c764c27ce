"""Which segments a page shows, and how their texts differ."""

from dataclasses import replace

import pytest

from posnet_eval.report.page import browsable, changes, extreme, most_different
from support import made_up


@pytest.mark.parametrize("metric", [0, 2])
def test_most_different_best_and_worst(metric):
    scores = {"a": [50.0, 90, 20, 90, 30, 10], "b": [50.0, 60, 40, 60, 80, 10 + 1e-9]}
    test_set, name = made_up.with_segments(scores, metric), made_up.METRICS[metric].name
    higher = metric == 0
    assert most_different(test_set, *("ab" if higher else "ba"), name) == [1, 3]
    assert most_different(test_set, *("ba" if higher else "ab"), name) == [4, 2]
    assert most_different(test_set, *("ba" if higher else "ab"), name, count=1) == [4]
    sign = 1 if higher else -1
    assert extreme(test_set, "a", name, sign, count=3) == [1, 3, 0]
    assert extreme(test_set, "a", name, -sign, count=3) == [5, 2, 4]


def test_equal_scores_come_in_the_order_of_lines():
    test_set = made_up.with_segments({"a": [50.0] * 40 + [60.0] + [50.0] * 40, "b": [20.0] * 81})
    assert extreme(test_set, "a", "bleu", 1) == [40, 0, 1, 2, 3]
    assert extreme(test_set, "a", "bleu", -1) == [0, 1, 2, 3, 4]
    assert most_different(test_set, "a", "b", "bleu") == [40, 0, 1, 2, 3]


def test_segments_with_the_same_text_are_not_different():
    """Scores are means over runs; what is shown is the first run."""
    outputs = {"a": [["same", "x"]], "b": [["same", "y"]]}
    test_set = made_up.with_segments({"a": [90.0, 50.0], "b": [10.0, 40.0]}, outputs=outputs)
    assert most_different(test_set, "a", "b", "bleu") == [1]


def words_at(text, spans):
    return [text[start:end] for start, end in zip(spans[::2], spans[1::2], strict=True)]


@pytest.mark.parametrize(
    ("a", "b", "in_a", "in_b"),
    [
        ("the cat sat", "the dog sat", ["cat"], ["dog"]),
        ("the big cat sat", "the cat", ["big", "sat"], []),
        ("a red hat.", "a blue cap.", ["red hat"], ["blue cap"]),
        ("快乐的猫。", "快乐的狗。", ["猫"], ["狗"]),
        ("ネコが好き", "イヌが好き", ["ネコ"], ["イヌ"]),
        ("😀 ok yes", "😀 ok no", ["yes"], ["no"]),
        ("यह किताब है", "यह कलम है", ["किताब"], ["कलम"]),
        ("", "all new", [], ["all new"]),
        ("a  b", "a b", [], []),
    ],
)
def test_changes(a, b, in_a, in_b):
    spans = changes(a, b)
    assert (words_at(a, spans[0]), words_at(b, spans[1])) == (in_a, in_b)


def test_data_of_segments():
    comparison = made_up.comparison(systems=3, segments=30, metrics=3, baselines=2)
    test_set = comparison.test_sets[0]
    data = browsable(comparison, test_set)
    assert data["start"] == [0, 1]
    for metric, (a_better, b_better) in enumerate(data["pairs"]["0:2"]):
        name = data["metrics"][metric].lower()
        assert a_better == [i + 1 for i in most_different(test_set, "s0", "s2", name)]
        assert b_better == [i + 1 for i in most_different(test_set, "s2", "s0", name)]
    assert data["alone"][1][2][1] == [i + 1 for i in extreme(test_set, "s1", "ter", -1)]
    line = data["pairs"]["0:2"][0][0][0]
    source, references, outputs = data["segments"][line]
    assert data["texts"][source] == test_set.sources[line - 1]
    assert data["texts"][references[0]] == test_set.references[0][line - 1]
    text, *scores = outputs[2]
    assert data["texts"][text] == test_set.outputs["s2"][0][line - 1]
    assert scores == [round(test_set.segments[metric.name]["s2"][line - 1], 1) for metric in test_set.metrics]
    assert data["changes"][f"{line}:0:2"] == changes(*(test_set.outputs[s][0][line - 1] for s in ("s0", "s2")))
    assert len(data["texts"]) == len(set(data["texts"]))
    other = replace(test_set, references=([" "] * 30, test_set.references[0]))
    found = browsable(comparison, other)
    assert found["segments"].pop(line)[1] == [-1, references[0]], "a reference keeps its number"
    assert found["changes"] == data["changes"], "compared with an empty line, which is no reference"
