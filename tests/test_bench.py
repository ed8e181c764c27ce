import pytest
import torch

from posnet_fairseq.bench import layers, memory, models, timing
from posnet_fairseq.errors import UsageError
from posnet_fairseq.registry import get_mixer, mixer_names


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


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_every_layer_is_measured(place):
    names = [name for name in mixer_names() if place in get_mixer(name).places]
    results = layers.run(names, 5, size="tiny", tokens=15, place=place, padded=True, rounds=1)
    assert set(results) == set(names)
    for figures in results.values():
        assert all(value > 0 for value in figures.values())


def test_layers_take_options_after_plus_signs():
    assert "shaw+shaw_values" in layers.run(["shaw+shaw_values"], 4, size="tiny", tokens=8, rounds=1)
    with pytest.raises(UsageError, match=r"--mixers shaw\+values: the options of shaw are clip_distance, shaw_values"):
        layers.run(["shaw+values"], 4, size="tiny", tokens=8, rounds=1)
    for variant, sentence in {
        "irpe+irpe_on=x": "--irpe-on x: choose one of k, q, v, qk",
        "irpe+irpe_on": "--irpe-on True: choose one of k, q, v, qk",
        "lightconv+clip_distance=abc": "--clip-distance abc: give a whole number",
        "shaw+clip_distance": "--clip-distance True: give a whole number",
        "shaw+clip_distance=-1": "--clip-distance -1: K must be at least 1",
        "shaw+shaw_values=False": "--shaw-values False: this is a switch",
    }.items():
        with pytest.raises(UsageError, match=sentence):
            layers.run([variant], 4, size="tiny", tokens=8, rounds=1)
    with pytest.raises(UsageError, match=r"--mixers fouriernet: fouriernet stands in encoder only"):
        layers.run(["fouriernet"], 4, size="tiny", tokens=8, rounds=1, place="decoder")


def test_peak_is_the_most_at_once():
    def call():
        first = torch.ones(1000)
        del first
        return torch.ones(2000), torch.ones(500)

    assert memory.peak_bytes(call) == 4 * 2500
