"""BLEURT and COMET on two devices, which here are the CPU twice: the same scores in the same order, from both."""

import itertools
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from posnet_eval.metrics import bleurt as bleurt_module
from posnet_eval.metrics import comet as comet_module
from posnet_eval.metrics import neural_metric
from posnet_eval.metrics.base import MetricOptions, Segment
from posnet_fairseq.shared.errors import UsageError
from support.signals import PATIENCE
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


def use(monkeypatch, count):
    monkeypatch.setattr(neural_metric, "devices", lambda cpu: [torch.device("cpu")] * count)


@pytest.fixture(params=METHODS)
def metric(request, comet, bleurt):
    options = MetricOptions(comet_model=str(comet), bleurt_model=str(bleurt), device="cpu")
    return {"comet": comet_module.Comet, "bleurt": bleurt_module.Bleurt}[request.param](options)


def watch(monkeypatch, metric, act):
    """Let act(number of the network) run before each batch of a network."""
    for number, network in enumerate(metric.networks):
        compute = getattr(network, METHODS[metric.name])

        def watched(*arguments, number=number, compute=compute, **named):
            act(number)
            return compute(*arguments, **named)

        monkeypatch.setattr(network, METHODS[metric.name], watched)


def assert_same(some, others):
    for (positions, rows), (other_positions, other_rows) in zip(some, others, strict=True):
        assert positions == other_positions
        np.testing.assert_array_equal(rows, other_rows)


def test_the_scores_of_one_device_from_both_at_the_same_time(metric, monkeypatch):
    expected = list(metric.statistics(SEGMENTS))
    assert len(expected) > 5
    metric.release()
    use(monkeypatch, 2)
    meeting, batches = threading.Barrier(2), [0, 0]

    def act(number):
        batches[number] += 1
        if batches[number] == 1:
            meeting.wait(timeout=PATIENCE)  # broken if one were to wait for the other

    watch(monkeypatch, metric, act)
    assert_same(list(metric.statistics(SEGMENTS)), expected)
    assert min(batches) > 1
    assert_same(list(metric.statistics(SEGMENTS)), expected)  # the networks are there for more


def test_few_segments_are_shared_too(metric, monkeypatch):
    use(monkeypatch, 2)
    assert [len(positions) for positions, _ in metric.statistics(SEGMENTS[:4])] == [2, 2]
    assert list(metric.statistics([])) == []


def test_an_error_on_one_device_is_raised_after_what_came_before_it(metric, monkeypatch):
    use(monkeypatch, 2)
    expected, batches = list(metric.statistics(SEGMENTS)), itertools.count(1)

    def act(number):
        if number == 1 and next(batches) == 6:
            raise torch.OutOfMemoryError("out of memory")

    watch(monkeypatch, metric, act)
    found, threads = [], set(threading.enumerate())
    with pytest.raises(torch.OutOfMemoryError) as error:
        found.extend(metric.statistics(SEGMENTS))
    assert str(error.value) == "out of memory"
    assert 0 < len(found) < len(expected)
    assert_same(found, expected[: len(found)])
    assert set(threading.enumerate()) <= threads


@pytest.mark.parametrize(
    ("given", "gpus", "expected"),
    [
        (None, 3, ["cuda:0", "cuda:1", "cuda:2"]),
        (None, 0, ["cpu"]),
        ("cuda", 2, ["cuda:0", "cuda:1"]),
        ("cuda:1", 2, ["cuda:1"]),
        ("cuda", 0, []),
        ("tpu", 2, []),
    ],
)
def test_devices(monkeypatch, given, gpus, expected):
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(device_count=lambda: gpus))
    if expected:
        assert [str(device) for device in neural_metric.devices(given)] == expected
        return
    sentence = f"--device {given}: this machine has {gpus} GPUs. Give one of them, or cpu."
    with pytest.raises(UsageError, match=sentence):
        neural_metric.devices(given)
