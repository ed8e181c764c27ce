"""BLEURT and COMET on two devices, which here are the CPU twice: the same scores in the same order, from both."""

import itertools
import shutil
import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from posnet_eval.metrics import bleurt as bleurt_module
from posnet_eval.metrics import comet as comet_module
from posnet_eval.metrics import networks, neural_metric
from posnet_eval.metrics.base import MetricOptions, Segment
from posnet_eval.score import main
from support.tiny_models import corpus

LINES = corpus(24)
# Sources and references shared by translations, as with several systems.
SEGMENTS = [
    *(Segment(f"s {LINES[n]}", f"{system} {LINES[n - 7]}", (LINES[-n],)) for n in range(24) for system in range(3)),
    Segment("", "", ("",)),
    Segment(LINES[0], LINES[0], (LINES[0],)),
]
METHODS = {"comet": "get_sentence_embedding", "bleurt": "forward"}  # of networks, once a batch


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    for module in (comet_module, bleurt_module):
        monkeypatch.setitem(module._TOKENS, "cpu", 64)
    monkeypatch.setitem(neural_metric.GROUP, "cpu", 5)


@pytest.fixture
def two_devices(monkeypatch):
    use(monkeypatch, 2)


def use(monkeypatch, count):
    monkeypatch.setattr(neural_metric, "devices", lambda options: [torch.device("cpu")] * count)


@pytest.fixture(params=METHODS)
def metric(request, comet, bleurt):
    options = MetricOptions(comet_model=str(comet), bleurt_model=str(bleurt), cpu=True)
    return {"comet": comet_module.Comet, "bleurt": bleurt_module.Bleurt}[request.param](options)


def watch(monkeypatch, metric, act):
    """Let act(number of the network) run before each batch of a network."""
    for number, network in enumerate(metric.networks):
        compute = getattr(network, METHODS[metric.name])

        def watched(*arguments, number=number, compute=compute, **named):
            act(number)
            return compute(*arguments, **named)

        monkeypatch.setattr(network, METHODS[metric.name], watched)


def same(some, others):
    return [positions for positions, _ in some] == [positions for positions, _ in others] and all(
        np.array_equal(rows, other) for (_, rows), (_, other) in zip(some, others, strict=True)
    )


def test_the_scores_of_one_device_from_both_at_the_same_time(metric, monkeypatch):
    expected = list(metric.statistics(SEGMENTS))
    assert len(expected) > 5
    metric.release()
    use(monkeypatch, 2)
    meeting, batches = threading.Barrier(2), [0, 0]

    def act(number):
        batches[number] += 1
        if batches[number] == 1:
            meeting.wait(timeout=60)  # broken if one were to wait for the other

    watch(monkeypatch, metric, act)
    assert same(list(metric.statistics(SEGMENTS)), expected)
    assert min(batches) > 1
    assert same(list(metric.statistics(SEGMENTS)), expected)  # the networks are there for more


@pytest.mark.usefixtures("two_devices")
def test_weights_are_loaded_once_and_copied(metric, monkeypatch):
    loaded, load = [], type(metric).load

    def watched(self):
        loaded.append(load(self))
        return loaded[-1]

    monkeypatch.setattr(type(metric), "load", watched)
    first, second = metric.networks
    assert metric.tokenizer is loaded[0][1]
    assert len(loaded) == 1
    assert first is loaded[0][0]
    assert not second.training
    weights = [network.state_dict() for network in (first, second)]
    assert weights[0].keys() == weights[1].keys()
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name])
        assert weight.data_ptr() != weights[1][name].data_ptr()


@pytest.mark.usefixtures("two_devices")
def test_an_error_on_one_device_is_raised_after_what_came_before_it(metric, monkeypatch):
    expected, batches = list(metric.statistics(SEGMENTS)), itertools.count(1)

    def act(number):
        if number == 1 and next(batches) == 6:
            raise torch.OutOfMemoryError("out of memory")

    watch(monkeypatch, metric, act)
    found, threads = [], threading.active_count()
    with pytest.raises(torch.OutOfMemoryError) as error:
        found.extend(metric.statistics(SEGMENTS))
    assert str(error.value) == "out of memory"
    assert 0 < len(found) < len(expected)
    assert same(found, expected[: len(found)])
    assert threading.active_count() == threads


@pytest.mark.usefixtures("two_devices")
def test_an_interrupted_run_computes_little_more(metric, monkeypatch):
    batches = []
    watch(monkeypatch, metric, batches.append)
    segments = [Segment(f"s{line}", line, (f"r{line}",)) for line in corpus(200)]
    parts, threads = metric.statistics(segments), threading.active_count()
    next(parts)
    parts.close()
    assert threading.active_count() == threads
    stopped = len(batches)
    list(metric.statistics(segments))
    assert len(batches) - stopped > 5 * stopped


def test_results_are_in_order_and_items_not_all_taken_at_once():
    """The first item takes longest; the others wait for nothing but their turn."""
    taken, done, last = [], threading.Event(), 7

    def items():
        for item in range(100):
            taken.append(item)
            yield item

    def function(network, item):
        if item == 0:
            assert done.wait(timeout=60)
        if item == 1:
            done.set()
        return item, network

    results = networks.map_on_networks(function, items(), ["a", "b"])
    assert next(results)[0] == 0
    assert len(taken) <= last
    rest = list(results)
    assert [item for item, _ in rest] == list(range(1, 100))
    assert {network for _, network in rest} == {"a", "b"}


@pytest.mark.parametrize(
    ("cpu", "gpus", "expected"),
    [(False, 3, ["cuda:0", "cuda:1", "cuda:2"]), (False, 1, ["cuda:0"]), (True, 3, ["cpu"]), (False, 0, ["cpu"])],
)
def test_devices(monkeypatch, cpu, gpus, expected):
    cuda = SimpleNamespace(is_available=lambda: gpus > 0, device_count=lambda: gpus)
    monkeypatch.setattr(torch, "cuda", cuda)
    assert [str(device) for device in networks.devices(MetricOptions(cpu=cpu))] == expected


def test_the_same_report_and_the_same_cache(tmp_path, monkeypatch, capsys, comet, bleurt):
    """What one device has put into the cache, two find there, and the other way round."""
    monkeypatch.chdir(tmp_path)
    for name, lines in {"s.en": LINES, "r.de": LINES[::-1], "a.de": LINES[5:] + LINES[:5], "b.de": LINES}.items():
        Path(name).write_text("\n".join(lines) + "\n")
    models = ["--comet-model", str(comet), "--bleurt-model", str(bleurt)]
    arguments = "--source s.en --reference r.de --system a=a.de b=b.de --metrics comet,bleurt --resamples 100".split()
    rows, reports = [], []
    for count in (1, 2):
        use(monkeypatch, count)
        main([*arguments, *models, "--cache", f"{count}.sqlite", "--out", f"{count}"])
        with sqlite3.connect(f"{count}.sqlite") as database:
            rows.append(database.execute("SELECT key, numbers FROM statistics ORDER BY key").fetchall())
        reports.append({path.name: path.read_bytes() for path in Path(f"{count}").iterdir()})
    assert len(rows[0]) == 2 * 48
    assert rows[0] == rows[1]
    assert reports[0] == reports[1]
    shutil.copy("2.sqlite", "copy.sqlite")
    use(monkeypatch, 1)
    capsys.readouterr()
    main([*arguments, *models, "--cache", "copy.sqlite", "--cached-only"])
    assert "COMET" in capsys.readouterr().out
