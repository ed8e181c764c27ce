"""Trainings of several epochs: each --save-interval-updates has its checkpoint, and resuming changes nothing."""

import shutil

import pytest

from posnet_data_prep import prepare
from posnet_fairseq.inference.checkpoints import read_checkpoint
from support import commands
from support.checkpoints import assert_same_weights
from support.corpus import prepared

SAVING = "--no-epoch-checkpoints --disable-validation --save-interval-updates".split()
SEVEN = ("--batch-size", "35")  # updates an epoch
FOUR = ("--batch-size", "60")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """240 sentence pairs."""
    folder = tmp_path_factory.mktemp("corpus")
    return prepared(folder, folder / "data", train=240, valid=10, test=10)


def train(monkeypatch, data, run, updates, *more):
    commands.call(monkeypatch, "train", *commands.train_arguments(data, run, "--max-update", updates, *more))


def updates_of(run):
    """Updates of the checkpoints called ``checkpoint_E_U.pt``, whose content is of update U."""
    found = []
    for path in run.glob("checkpoint_*_*.pt"):
        _, _, updates = path.stem.split("_")
        assert read_checkpoint(path)["optimizer_history"][-1]["num_updates"] == int(updates)
        found.append(int(updates))
    return sorted(found)


@pytest.mark.parametrize(
    ("batches", "interval", "updates"),
    [(FOUR, 5, 20), (SEVEN, 4, 28)],
)
@pytest.mark.thorough  # 3 s
def test_every_interval_has_its_checkpoint(monkeypatch, data, tmp_path, batches, interval, updates):
    train(monkeypatch, data, tmp_path, updates, *batches, *SAVING, interval)
    assert updates_of(tmp_path) == list(range(interval, updates + 1, interval))
    assert read_checkpoint(tmp_path / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == updates


@pytest.mark.thorough  # the pattern is quick
def test_the_last_ones_are_kept(monkeypatch, data, tmp_path):
    """Saving options of the fairseq-train command in the README."""
    saving = "--save-interval-updates 2 --keep-interval-updates 3 --no-epoch-checkpoints".split()
    train(monkeypatch, data, tmp_path, 12, *FOUR, *saving, "--best-checkpoint-metric", "ppl")
    assert updates_of(tmp_path) == [8, 10, 12]
    assert not list(tmp_path.glob("checkpoint?.pt"))
    best = read_checkpoint(tmp_path / "checkpoint_best.pt")["extra_state"]
    assert best["val_loss"] == best["best"]


def test_pattern_of_those_to_keep(monkeypatch, data, tmp_path):
    saving = "--keep-interval-updates 1 --keep-interval-updates-pattern 4".split()
    train(monkeypatch, data, tmp_path, 10, *FOUR, *SAVING, "2", *saving)
    assert updates_of(tmp_path) == [4, 8, 10]


@pytest.mark.thorough  # the pattern is quick
def test_files_of_epochs_are_written_besides(monkeypatch, data, tmp_path):
    """--save-interval skips every other epoch, --keep-last-epochs removes all but one."""
    saving = "--disable-validation --save-interval-updates 4 --save-interval 2 --keep-last-epochs 1".split()
    train(monkeypatch, data, tmp_path, 16, *FOUR, *saving)
    assert updates_of(tmp_path) == [4, 8, 12, 16]
    assert [path.name for path in tmp_path.glob("checkpoint?.pt")] == ["checkpoint4.pt"]
    assert_same_weights(tmp_path / "checkpoint4.pt", tmp_path / "checkpoint_4_16.pt", rtol=0, atol=0)


def test_only_updates_that_are_due_are_numbered(monkeypatch, data, tmp_path):
    train(monkeypatch, data, tmp_path, 6, *FOUR, "--disable-validation", "--no-epoch-checkpoints")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_last.pt"]


@pytest.mark.parametrize(("frequency", "updates"), [("2", 4), ("1", 6), ("2", 7)])
@pytest.mark.thorough  # 8 s
def test_resuming_changes_nothing(monkeypatch, data, tmp_path, frequency, updates):
    """Resumes at the end of epoch 1, in the middle of epoch 2, and before its last update, with dropout."""
    batches = [*("--batch-size", str(60 // int(frequency))), *("--update-freq", frequency), *("--dropout", "0.1")]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for run, parts in ((whole, [14]), (cut, [updates, 14])):
        for part in parts:
            train(monkeypatch, data, run, part, *batches, *SAVING, "4")
    assert updates_of(whole) == updates_of(cut) == [4, 8, 12]
    for name in ("checkpoint_3_12.pt", "checkpoint_last.pt"):
        assert_same_weights(whole / name, cut / name, rtol=0, atol=0)


@pytest.mark.thorough  # 3 s
def test_resuming_a_language_model_changes_nothing(monkeypatch, data, tmp_path):
    prepare.main(["text", "--train", str(data.parent / "train.xx"), "--pieces", "35", "--out", str(tmp_path / "data")])
    settings = (
        "--task language_modeling --arch gpt_a_attention --tokens-per-sample 12 --batch-size 16 --cpu --optimizer adam "
        "--lr 0.01 --decoder-layers 1 --decoder-embed-dim 48 --decoder-ffn-embed-dim 96 --decoder-attention-heads 3 "
        "--no-epoch-checkpoints --disable-validation --save-interval-updates 5 --num-workers 0 "
        "--required-batch-size-multiple 1 --no-progress-bar"
    ).split()
    for run, parts in (("whole", [23]), ("cut", [13, 23])):
        for part in parts:
            places = ["--save-dir", tmp_path / run, "--max-update", part]
            commands.call(monkeypatch, "train", tmp_path / "data", *settings, *places)
    assert updates_of(tmp_path / "whole") == updates_of(tmp_path / "cut") == [5, 10, 15, 20]
    state = read_checkpoint(tmp_path / "whole" / "checkpoint_last.pt")
    assert state["extra_state"]["train_iterator"]["epoch"] > 2
    assert_same_weights(tmp_path / "whole/checkpoint_last.pt", tmp_path / "cut/checkpoint_last.pt", rtol=0, atol=0)


@pytest.mark.thorough  # 2 s
def test_a_checkpoint_at_the_end_of_an_epoch_begins_the_next(monkeypatch, data, tmp_path):
    """Whichever file it is resumed from."""
    train(monkeypatch, data, tmp_path, 8, *FOUR, *SAVING, "4")
    for name in ("checkpoint_2_8.pt", "checkpoint_last.pt"):
        position = read_checkpoint(tmp_path / name)["extra_state"]["train_iterator"]
        assert (position["epoch"], position["iterations_in_epoch"]) == (3, 0)
    train(monkeypatch, data, tmp_path, 12, *FOUR, *SAVING, "4")
    (tmp_path / "again").mkdir()
    shutil.copy(tmp_path / "checkpoint_2_8.pt", tmp_path / "again" / "checkpoint_last.pt")
    train(monkeypatch, data, tmp_path / "again", 12, *FOUR, *SAVING, "4")
    assert_same_weights(tmp_path / "checkpoint_last.pt", tmp_path / "again/checkpoint_last.pt", rtol=0, atol=0)
