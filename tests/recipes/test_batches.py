"""The tokens of batches: those of the size, unless a user or an earlier attempt says otherwise."""

import pytest

from posnet_fairseq.cli.run import find_target
from posnet_fairseq.runs import commands
from posnet_fairseq.runs.devices import Device
from posnet_fairseq.runs.run_settings import TranslationData
from posnet_fairseq.runs.training import value_of
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import Record

GPU, CPU = Device("gpu", 1, "bf16"), Device("cpu", 1)


def settings(*words):
    return find_target("wmt14.en-de").read("corpus", ["--size", "tiny", "--mixer", "transformer_pos", *words])


def planned(run, device=CPU):
    """The command of a training, and the tokens and the number of its batches."""
    training = commands.training(run, TranslationData("en", "de", "key"), device, ProgressReporter())
    return training.command, [value_of(training.arguments, flag) for flag in ("--max-tokens", "--update-freq")]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("device", [GPU, CPU])
def test_batches_are_those_of_the_size_unless_others_are_given(device):
    assert planned(settings("--tokens", "2400"), device)[1] == ["1200", "2"]
    assert planned(settings("--size", "base", "--tokens", "6800"), device)[1] == ["3400", "2"]
    assert planned(settings("--tokens", "2400", "--max-tokens", "300"), device)[1] == ["300", "8"]


@pytest.mark.parametrize("finished", [False, True])
def test_training_that_has_begun_keeps_its_batches(finished):
    """Earlier versions chose them by the memory of GPUs."""
    run = settings("--tokens", "10000")
    first, batches = planned(settings("--tokens", "10000", "--max-tokens", "2600"))
    assert batches == ["2500", "4"]
    record = Record(run.run / "train.json")
    record.path.parent.mkdir(parents=True)
    record.begin({}, command=first)
    # What failed before its first checkpoint, maybe for want of memory, has not begun.
    assert planned(run)[1] == ["1111", "9"]
    if finished:
        record.end("finished")
    else:
        (run.run / "checkpoints").mkdir()
        (run.run / "checkpoints/checkpoint_last.pt").touch()
    for device in (GPU, CPU):
        assert planned(run, device)[1] == batches
    assert planned(settings("--tokens", "10000", "--max-tokens", "300"))[1] == ["294", "34"]
    if not finished:  # what failed later, maybe for want of memory, is not kept
        record.begin({}, command=[word.replace("2500", "5000") for word in first])
        record.end("exit code 1")
        assert planned(run)[1] == batches


@pytest.mark.parametrize(("tokens", "most", "batches", "expected"), [(25_000, 8334, 3, 8333), (10_000, 2999, 4, 2500)])
def test_batches_of_an_attempt_are_those_of_the_next(tokens, most, batches, expected):
    for given in (most, expected):
        run = settings("--tokens", str(tokens), "--max-tokens", str(given))
        assert planned(run)[1] == [str(expected), str(batches)]
