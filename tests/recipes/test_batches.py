"""Batches as large as the memory of a GPU allows."""

import functools

import pytest

from posnet_fairseq.cli.run import find_target
from posnet_fairseq.costs import counting
from posnet_fairseq.costs.training_memory import training_memory
from posnet_fairseq.inference.stored_energies import parameter_count
from posnet_fairseq.runs import commands, devices
from posnet_fairseq.runs.commands import CONTEXT, GIB, USABLE, batch_tokens
from posnet_fairseq.runs.devices import Device
from posnet_fairseq.runs.run_settings import TranslationData
from posnet_fairseq.runs.training import value_of
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import Record

DATA = TranslationData("en", "de", "key")


def settings(*words):
    return find_target("wmt14.en-de").read("corpus", ["--size", "tiny", "--mixer", "transformer_pos", *words])


def tokens_of(run, device):
    return batch_tokens(run, DATA, device, device.processes, ProgressReporter())


def planned(run, device):
    return commands.training(run, DATA, device, ProgressReporter())


def gpu(step, processes=1):
    """A GPU on which a training step may take a number of bytes."""
    return Device("gpu", processes, "bf16", int((step + CONTEXT) / USABLE) + 1)


@functools.cache
def estimate(tokens, **options):
    return training_memory("attention", "tiny", tokens, words=1000, length=256, **options)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with dictionaries of 1,000 entries."""
    (tmp_path / "data/wmt14.en-de").mkdir(parents=True)
    for name in ("en", "de"):
        (tmp_path / f"data/wmt14.en-de/dict.{name}.txt").write_text("word 1\n" * 996)
    monkeypatch.chdir(tmp_path)


def test_batch_of_a_cpu_is_that_of_the_size():
    assert tokens_of(settings(), Device("cpu", 1)) == 1200
    assert tokens_of(settings("--size", "base"), Device("cpu", 2)) == 3400


def test_batch_that_was_given_is_taken(capsys):
    assert tokens_of(settings("--max-tokens", "300"), gpu(0)) == 300
    assert capsys.readouterr().err == ""


@pytest.mark.thorough  # 10 s: ten simulated training steps
def test_batch_of_a_gpu_is_what_its_memory_holds(capsys):
    whole, run = gpu(estimate(20_000)), settings("--tokens", "20000")
    assert tokens_of(run, whole) == 20_000
    line = capsys.readouterr().err
    assert f"batches of 20000 tokens: a training step takes about {estimate(20_000) / GIB:.1f} GiB" in line
    assert f"of {whole.memory / GIB:.1f} on the GPU (--max-tokens chooses other batches)" in line
    assert line.count("\n") == 1
    most = tokens_of(run, gpu(estimate(8000)))
    assert 7000 < most <= 8000
    narrow = settings("--tokens", "20000", "--options=--decoder-layers 1")
    assert tokens_of(narrow, gpu(estimate(8000))) > most


@pytest.mark.thorough  # 10 s: starts two processes
def test_processes_share_an_update_and_have_buffers():
    parameters = parameter_count(counting.build("attention", "tiny", words=1000))
    assert estimate(4000, distributed=True) == estimate(4000) + 2 * parameters
    for more, expected in ((0, ["2000", "2"]), (2 * parameters, ["4000", "1"])):
        found = planned(settings("--tokens", "8000"), gpu(estimate(4000) + more, 2)).arguments
        assert [found[found.index(flag) + 1] for flag in ("--max-tokens", "--update-freq")] == expected


@pytest.mark.thorough  # 10 s
def test_criterion_of_the_options_is_estimated():
    shape, at_once = ("--tokens", "20000"), estimate(8000, chunked=False)
    most = tokens_of(settings(*shape, "--options=--criterion=label_smoothed_cross_entropy"), gpu(at_once))
    assert 7000 < most <= 8000
    assert tokens_of(settings(*shape), gpu(at_once)) > 8000


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.thorough  # 8 s: trains twice
def test_training_that_has_begun_keeps_its_batches(monkeypatch, finished, capsys):
    run = settings("--tokens", "10000")
    first = planned(run, gpu(estimate(2600)))
    batch = [value_of(first.arguments, flag) for flag in ("--max-tokens", "--update-freq")]
    assert batch == ["2500", "4"]
    record = Record(run.run / "train.json")
    record.path.parent.mkdir(parents=True)
    record.begin({}, command=first.command)
    # What failed before its first checkpoint, maybe for want of memory, has not begun.
    assert tokens_of(run, gpu(estimate(1000))) <= 1000
    if finished:
        record.end("finished")
    else:
        (run.run / "checkpoints").mkdir()
        (run.run / "checkpoints/checkpoint_last.pt").touch()
    capsys.readouterr()
    for device in (gpu(0), gpu(estimate(10_000)), Device("cpu", 1)):
        again = planned(run, device).arguments
        assert [value_of(again, flag) for flag in ("--max-tokens", "--update-freq")] == batch
    assert "takes about" not in capsys.readouterr().err
    assert tokens_of(settings("--tokens", "10000", "--max-tokens", "300"), gpu(0)) == 300
    if not finished:  # what failed later, maybe for want of memory, is not kept
        record.begin({}, command=[word.replace("2500", "5000") for word in first.command])
        record.end("exit code 1")
        assert tokens_of(run, gpu(0)) == 2500


@pytest.mark.parametrize(("tokens", "most", "batches", "expected"), [(25_000, 8334, 3, 8333), (10_000, 2999, 4, 2500)])
def test_batches_of_an_attempt_are_those_of_the_next(tokens, most, batches, expected):
    for given in (most, expected):
        run = settings("--tokens", str(tokens), "--max-tokens", str(given))
        found = planned(run, Device("cpu", 1)).arguments
        assert [value_of(found, flag) for flag in ("--max-tokens", "--update-freq")] == [str(expected), str(batches)]


def test_too_little_memory_is_one_sentence():
    with pytest.raises(UsageError) as raised:
        tokens_of(settings(), gpu(estimate(256) - 1))
    sentence = str(raised.value)
    assert "--size tiny: a training step with a single sentence of 256 tokens takes about 0.1 GiB" in sentence
    assert "of the run's 1.2 GiB of GPU memory 0.1 are left for it. Take a smaller size" in sentence


def test_device_has_the_memory_of_the_smallest_gpu(monkeypatch):
    sizes = [48 * GIB, 24 * GIB, 8 * GIB]
    monkeypatch.setattr(devices, "gpus", lambda: (3, True))
    monkeypatch.setattr(
        "torch.cuda.get_device_properties", lambda index: type("Properties", (), {"total_memory": sizes[index]})
    )
    assert devices.find_device(settings("--gpus", "2")) == Device("gpu", 2, "bf16", 24 * GIB)
    assert devices.find_device(settings("--gpus", "1"), tenants=6) == Device("gpu", 1, "bf16", 8 * GIB)
