from dataclasses import replace
from pathlib import Path

import pytest
import torch

from posnet_fairseq.cli.average import main
from posnet_fairseq.inference.averaging import (
    SavedCheckpoint,
    average,
    before_best,
    choose,
    doubts,
    lost_best,
    numbered_checkpoints,
)
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text import synthetic
from support.checkpoints import checkpoint, weights
from support.damaged import put


@pytest.mark.parametrize(
    ("scores", "number", "first", "maximize"),
    [
        ((5, 3, 4, 4), 2, 1, False),  # the best and the one that follows
        ((5, 4, 4, 3), 2, 2, False),  # none follows: the last two
        ((5, 4, 3, 4), 3, 1, False),  # one follows: the last three
        ((3, 4, 5, 6), 4, 0, False),
        ((3, 3, 5, 6), 1, 0, False),  # the earlier of two best
        ((None, None, None), 2, 1, False),  # never validated
        ((None, 2, 3), 2, 1, False),
        ((10, 30, 20, 25), 2, 1, True),
    ],
)
def test_best_and_following_or_last(scores, number, first, maximize):
    run = [SavedCheckpoint(Path(f"{n}.pt"), n, score, maximize=maximize) for n, score in enumerate(scores)]
    assert [checkpoint.updates for checkpoint in choose(run, number)] == list(range(first, first + number))
    for wrong in (0, len(run) + 1):
        with pytest.raises(UsageError, match=f"^--num {wrong}: there are {len(run)} checkpoints. Give 1 to {len(run)}"):
            choose(run, wrong)


def numbered(*updates, scores):
    return [SavedCheckpoint(Path(f"checkpoint_1_{n}.pt"), n, score) for n, score in zip(updates, scores, strict=True)]


def test_a_lost_best_checkpoint_is_noticed():
    kept = numbered(30, 40, scores=(4.0, 3.0))
    lost = SavedCheckpoint(Path("checkpoint_best.pt"), 20, 2.5, metric="ppl")
    assert "ppl 2.5000 after 20 updates) was not kept" in lost_best(kept, lost)
    for best in (
        None,
        replace(lost, valid=None),
        replace(lost, valid=3.0),  # as good as one that is there
        replace(lost, updates=40, valid=3.0),
        replace(lost, updates=25, numbered=False),  # the end of an epoch, which had no number
        replace(lost, updates=50),  # the end of the run, later than the last number
    ):
        assert lost_best(kept, best) is None
    assert lost_best(numbered(30, scores=(None,)), lost)
    assert lost_best(kept, replace(lost, valid=5.0, maximize=True))


def test_checkpoints_before_the_best_one_are_noticed():
    (note,) = before_best(numbered(10, 20, 30, scores=(4.0, 3.0, 3.0)))
    assert note.startswith("the best checkpoint, checkpoint_1_20.pt, is followed by 1 checkpoint: the last 3 are")
    assert not before_best(numbered(10, 20, 30, scores=(3.0, None, 3.0)))
    assert not before_best(numbered(10, 20, scores=(None, None)))
    assert not before_best(numbered(10, 20, scores=(4.0, 3.0)))  # the training ended with the best one


def test_data_that_was_moved_are_the_same(tmp_path):
    for folder, words in (("here/data", 40), ("there/data", 40), ("there/other", 50)):
        (tmp_path / folder).mkdir(parents=True)
        synthetic.dictionary(words).save(str(tmp_path / folder / "dict.xx.txt"))
    paths = [checkpoint(tmp_path / f"checkpoint_1_{i}.pt", updates=i) for i in (1, 2)]
    for folder in ("here/data", "there/data", "gone/data", "there/other", "gone/other"):
        for path, data in zip(paths, ("here/data", folder), strict=True):
            put("cfg", "task", "data", str(tmp_path / data), name=path.name)(tmp_path)
        if folder == "there/other":
            with pytest.raises(UsageError, match=r"trained with the data .* Average checkpoints of one run"):
                average(paths)
            continue
        average(paths)
        noted = [note for note in doubts(numbered_checkpoints(tmp_path)) if "was trained with the data other" in note]
        assert len(noted) == (folder == "gone/other")


def test_no_number_is_not_the_best(tmp_path):
    checkpoint(tmp_path / "checkpoint_1_20.pt", updates=20, loss=float("nan"))
    checkpoint(tmp_path / "checkpoint_1_30.pt", updates=30, loss=3.0)
    assert choose(numbered_checkpoints(tmp_path), 1)[0].updates == 30


@pytest.mark.parametrize("copies", [False, True], ids=["cpu", "gpu"])
def test_shared_tensors_are_saved_once(tmp_path, copies):
    paths = [checkpoint(tmp_path / f"checkpoint_1_{i}.pt", updates=i) for i in (1, 2)]
    for path in paths if copies else ():  # as fairseq saves a model on a GPU
        put("model", {name: weight.clone() for name, weight in weights(path).items()}, name=path.name)(tmp_path)
    state = average(paths)
    assert state["last_optimizer_state"] is None
    mean = state["model"]
    assert mean["encoder.embed_tokens.weight"] is mean["decoder.output_projection.weight"]


@pytest.mark.parametrize(("number", "says"), [(2, "moving averages of the weights"), (1, "only 1 of them have moving")])
def test_moving_averages_are_averaged_where_all_have_them(tmp_path, capsys, number, says):
    name, paths = "encoder.embed_tokens.weight", []
    for update in (1, 2):
        paths.append(checkpoint(tmp_path / f"checkpoint_1_{update}.pt", updates=update))
        if update <= number:
            moving = {each: tensor * update * 10 for each, tensor in weights(paths[-1]).items()}
            put("extra_state", "ema", moving, name=paths[-1].name)(tmp_path)
    main([str(tmp_path), "--num", "2", "--out", str(tmp_path / "averaged.pt")])
    assert says in "".join(capsys.readouterr())
    first, second = (weights(path)[name].double() for path in paths)
    expected = (10 * first + 20 * second) / 2 if number == 2 else (first + second) / 2
    torch.testing.assert_close(weights(tmp_path / "averaged.pt")[name], expected.float())


def test_mean_is_rounded_once(tmp_path):
    paths = [checkpoint(tmp_path / f"checkpoint_1_{number}.pt", updates=number) for number in (1, 2, 3)]
    name = "encoder.embed_tokens.weight"
    each = [weights(path)[name].double() for path in paths]
    assert torch.equal(average(paths)["model"][name], (sum(each) / 3).float())


@pytest.mark.parametrize(("following", "numbered"), [(3, True), (4, False)])
def test_the_end_of_an_epoch_is_numbered_where_epochs_are_saved(tmp_path, following, numbered):
    path = checkpoint(tmp_path / "checkpoint2.pt")
    put("cfg", "checkpoint", {"save_interval": 2}, name=path.name)(tmp_path)
    over = {"epoch": following, "iterations_in_epoch": 0}
    put("extra_state", "train_iterator", over, name=path.name)(tmp_path)
    assert numbered_checkpoints(tmp_path)[0].numbered == numbered


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mean_of_half_precision_is_not_rounded_to_it(tmp_path, dtype):
    paths = []
    for number in (1, 2):
        paths.append(checkpoint(tmp_path / f"checkpoint_1_{number}.pt", updates=number))
        halves = {name: tensor.to(dtype) for name, tensor in weights(paths[-1]).items()}
        put("model", halves, name=paths[-1].name)(tmp_path)
    name = "encoder.embed_tokens.weight"
    first, second = (weights(path)[name].double() for path in paths)
    mean = average(paths)["model"][name]
    assert mean.dtype == torch.float32
    assert torch.equal(mean.double(), (first + second) / 2)


def test_checkpoints_are_the_numbered_checkpoints_in_order_of_training(tmp_path):
    checkpoint(tmp_path / "checkpoint_2_100.pt", updates=100, loss=2.0)
    checkpoint(tmp_path / "checkpoint_1_20.pt", updates=20, loss=3.0)
    checkpoint(tmp_path / "checkpoint2.pt", updates=100, loss=2.0)
    for copy in ("checkpoint_best", "checkpoint_last", "checkpoint.best_loss_2.00", "averaged"):
        checkpoint(tmp_path / f"{copy}.pt", updates=100)
    found = numbered_checkpoints(tmp_path)
    assert [(checkpoint.updates, checkpoint.valid) for checkpoint in found] == [(20, 3.0), (100, 2.0)]
