import numpy as np

from posnet_eval.metrics.base import MetricOptions
from posnet_eval.statistics.summary import by_length
from support.made_up import Mean


def buckets(lines, scores):
    rows = np.stack([scores, np.ones(len(scores))], axis=1)
    return list(by_length(lines, [Mean(MetricOptions())], {"mean": {"a": rows, "b": 2 * rows}}))


def test_words_are_counted():
    lines = ["", "one two", "w " * 9, "w " * 10, "w " * 19, "w " * 50, "w " * 500]
    found = buckets(lines, [1.0, 2, 3, 10, 20, 100, 300])
    assert [(bucket.label, bucket.size) for bucket in found] == [("0-9", 3), ("10-19", 2), ("50+", 2)]
    assert [bucket.scores["a"]["mean"] for bucket in found] == [2, 15, 200]
    assert found[0].scores["b"]["mean"] == 2  # (2 + 4 + 6) of twice as many


def test_characters_of_scripts_without_spaces_are_words():
    assert [bucket.label for bucket in buckets(["我们今天去看看吧。" + "天" * 3, "GitHub 我们"], [1.0, 1.0])] == [
        "0-9",
        "10-19",
    ]
