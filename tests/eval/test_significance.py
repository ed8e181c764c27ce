"""p-values against sacreBLEU's PairedTest (itself tested against Moses and multeval), and scores by length."""

import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from posnet_eval.api import score
from posnet_eval.metrics.base import MetricOptions
from posnet_eval.statistics import significance
from posnet_eval.statistics.summary import buckets, by_length
from support.made_up import Mean

SEED = 12345  # sacreBLEU's
THEIRS = {"bleu": BLEU, "chrf": CHRF, "ter": TER}


def outputs(difference, size, seed=1):
    """Outputs of three systems, of which b has `difference` percent more wrong words than a, and their reference."""
    generator = random.Random(seed)
    reference = [" ".join(f"w{generator.randrange(50)}" for _ in range(8)) for _ in range(size)]
    broken = [
        [" ".join("oops" if generator.random() < share else word for word in line.split()) for line in reference]
        for share in (0.2, 0.2 + difference / 100, 0.3)
    ]
    return dict(zip("abc", broken, strict=True)), reference


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("test", ["bs", "ar"])
@pytest.mark.parametrize(("size", "difference"), [(1, 80), (2, 0), (2, 40), (5, 40), (200, 2)])
def test_p_is_that_of_sacrebleu(tmp_path, name, test, size, difference):
    """Also of small corpora and ties."""
    systems, reference = outputs(difference, size)
    found = score(systems, reference, metrics=name, test=test, resamples=200, trials=200, cache=tmp_path / "cache")
    metric = THEIRS[name](references=[reference])
    _, results = PairedTest(list(systems.items()), {name: metric}, None, test_type=test, n_samples=200)()
    (key,) = results.keys() - {"System"}
    for number, system in enumerate("bc", 1):
        difference = found.test_sets[0].difference(system, "a", name)
        # sacreBLEU's p of equal scores in all resamples is its least.
        is_tie = difference.value == difference.low == difference.high == 0
        assert difference.p == (1 if is_tie else results[key][number].p_value)


def test_equal_statistics_of_other_texts_are_no_difference(tmp_path):
    systems = {"a": ["one two", "three"], "b": ["one  two", "three "]}
    for test in ("shift", "bs", "ar"):
        found = score(systems, ["one two", "four"], test=test, cache=tmp_path / "cache").test_sets[0]
        assert found.difference("b", "a", "bleu").p == 1


def test_parts_do_not_matter(monkeypatch):
    """Many lines are resampled in parts: the same draws as all at once."""
    rows = np.random.default_rng(1).integers(0, 9, (2, 37, 3)).astype(float)
    draws = (significance.bootstrap_sums, significance.shuffled_sums)
    whole = [draw({"a": rows}, 500, SEED)["a"] for draw in draws]
    monkeypatch.setattr(significance, "AT_ONCE", 37 * 32)
    assert np.array_equal(whole, [draw({"a": rows}, 500, SEED)["a"] for draw in draws])
    drawn = np.random.default_rng(SEED).choice(37, size=(500, 37), replace=True)
    assert np.array_equal(whole[0], rows[:, drawn].sum(2).swapaxes(0, 1))


def compared(values, others, higher_is_better=True):
    """A mean metric's difference of segment scores."""
    metric = Mean(MetricOptions())
    metric.higher_is_better = higher_is_better
    return significance.compare(metric, *resampled(values, others), same=False)


def resampled(values, others):
    """Two systems by a mean metric."""
    corpus = Mean(MetricOptions()).corpus
    rows = {of: np.stack([each, np.ones(len(each))], axis=1)[None] for of, each in enumerate((values, others))}
    sums = significance.bootstrap_sums(rows, 1000, 0)
    return [significance.Runs(corpus(rows[of].sum(1)), corpus(sums[of])) for of in rows]


def test_directions_win_rates_and_intervals():
    generator = np.random.default_rng(1)
    low, high = generator.normal(50, 5, 300), generator.normal(53, 5, 300)
    better, worse = compared(high, low), compared(low, high)
    assert (better.arrow, worse.arrow) == ("↑", "↓")
    assert better.value == pytest.approx(-worse.value)
    assert better.win_rate > 0.99
    assert worse.win_rate == pytest.approx(1 - better.win_rate)
    assert 0 < better.low < better.value < better.high
    assert better.p_shift < 0.01
    assert better.reversed() == worse
    assert compared(high, low, higher_is_better=False).arrow == "↓"
    assert compared(high, low, higher_is_better=False).win_rate < 0.01
    others = generator.permutation(low)
    chance, (a, b) = compared(low, others), resampled(low, others)
    assert chance.arrow == ""
    differences = a.means - b.means
    extremes = abs(differences - differences.mean()) >= abs(a.value - b.value)
    assert chance.p_shift == (1 + extremes.sum()) / 1001 > 0.05
    assert compared(low, low).win_rate == 0.5


def test_of_equal_translations_the_usual_test_marks_5_percent():
    """As the chance of 3,000 pairs allows (standard error 0.4%); sacreBLEU's p marks twice as many."""
    pairs, metric, marked = 3000, Mean(MetricOptions()), []
    scores = np.random.default_rng(1).normal(40, 10, (pairs, 2, 60))
    sums = significance.bootstrap_sums({"": scores.reshape(-1, 60, 1)}, 300, SEED)[""][:, :, 0].T / 60
    for both, samples in zip(scores, sums.reshape(pairs, 2, 300, 1), strict=True):
        runs = [significance.Runs(each.mean(keepdims=True), of) for each, of in zip(both, samples, strict=True)]
        found = [significance.compare(metric, *runs, same=False, is_shift=is_shift) for is_shift in (True, False)]
        marked.append([bool(each.arrow) for each in found])
        assert found[0].p == found[0].p_shift == found[1].p_shift
    usual, sacrebleus = np.mean(marked, axis=0)
    assert 0.04 < usual < 0.065
    assert 0.09 < sacrebleus < 0.14


def test_the_usual_test(tmp_path):
    """Of one run each it is the two-sided one, of which sacreBLEU's is another."""
    systems, reference = outputs(2, 200)
    found = {test: score(systems, reference, test=test, cache=tmp_path / "cache") for test in (None, "shift", "bs")}
    assert [result.test for result in found.values()] == ["shift", "shift", "bs"]
    usual, named, sacrebleus = (result.test_sets[0].difference("b", "a", "bleu") for result in found.values())
    assert usual == named
    assert usual.p == usual.p_shift == sacrebleus.p_shift != sacrebleus.p


def lengths(lines, scores):
    rows = np.stack([scores, np.ones(len(scores))], axis=1)
    mean = Mean(MetricOptions())
    return list(
        buckets(
            by_length(lines), {"mean": mean}, {("mean", "a"): rows[None], ("mean", "b"): np.stack([rows, 3 * rows])}
        )
    )


def test_words_are_counted():
    lines = ["", "one two", "w " * 9, "w " * 10, "w " * 19, "w " * 50, "w " * 500]
    found = lengths(lines, [1.0, 2, 3, 10, 20, 100, 300])
    assert [(bucket.label, bucket.size) for bucket in found] == [("0-9", 3), ("10-19", 2), ("50+", 2)]
    assert [bucket.scores["a"]["mean"] for bucket in found] == [2, 15, 200]
    assert found[0].scores["b"]["mean"] == 2  # (2 + 4 + 6) of twice as many
    without_spaces = lengths(["我们今天去看看吧。" + "天" * 3, "GitHub 我们"], [1.0, 1.0])
    assert [bucket.label for bucket in without_spaces] == ["0-9", "10-19"]
    (mixed,) = lengths(["abcไทยดีมากๆ(ลาว)"], [1.0])
    assert mixed.label == "10-19"  # abc, eight of Thai, (, three of Lao, )
