import pytest

from posnet_fairseq.bench import models, timing
from posnet_fairseq.registry import mixer_names


def test_interleaved_runs_in_turn_and_leaves_the_warm_up_out():
    calls, ticks = [], iter(range(100))
    functions = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    seconds = timing.interleaved(functions, rounds=2, warm_up=1, clock=lambda: next(ticks))
    assert calls == ["a", "b"] * 3
    assert seconds == {"a": [1, 1], "b": [1, 1]}


def test_ratio_is_taken_round_by_round():
    assert timing.median_ratio([1, 20, 3], [2, 40, 3]) == 0.5


def test_every_mixer_is_measured():
    results = models.run(mixer_names(), sentences=2, length=3, beam=2, rounds=1, words=50)
    assert len(results) == 1 + len(mixer_names())
    for figures in results.values():
        assert all(value > 0 for value in figures.values())
    assert results[models.BASELINE]["training_ratio"] == pytest.approx(1)
