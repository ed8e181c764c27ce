"""What is done before and while a run trains: old checkpoints, disk space, damaged checkpoints, bad options."""

import errno
import random
import re
import shutil
from types import SimpleNamespace

import pytest
import torch

from posnet_fairseq.inference.averaging import SavedCheckpoint, choose
from posnet_fairseq.runs import before_training
from posnet_fairseq.runs.before_training import repair
from posnet_fairseq.runs.training import (
    BLEU,
    COPIES,
    best_validation,
    most_kept,
    records,
    remove_old,
    since_the_beginning,
)
from posnet_fairseq.shared.errors import UsageError
from support.checkpoints import checkpoint
from support.damaged import zeros

VALID = '2026 | INFO | valid | {{"valid_ppl": "{}", "valid_num_updates": "{}"}}\n'


@pytest.mark.parametrize("average", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_what_averaging_chooses_is_never_removed(tmp_path, average, seed):
    """Whenever the training ends, and whatever its perplexities do."""
    generator = random.Random(seed)
    values, log, run = [], tmp_path / "train.log", []
    for index in range(1, 25):
        # An end of an epoch is validated without a numbered checkpoint; perplexities repeat, and may be no numbers.
        value = generator.choice(["nan", *range(3, 3 + max(2, 12 - index // 2))])
        values.append(VALID.format(value, 10 * index) + VALID.format(1, 10 * index + 3))
        log.write_text("".join(values))
        path = tmp_path / f"checkpoint_1_{10 * index}.pt"
        path.touch()
        run.append(SavedCheckpoint(path, 10 * index, None if value == "nan" else float(value)))
        assert len(list(tmp_path.glob("*.pt"))) <= most_kept(average, 24) - COPIES
        remove_old(tmp_path, log, average)
        if len(run) >= average:
            assert all(chosen.path.exists() for chosen in choose(run, average))
    assert len(list(tmp_path.glob("*.pt"))) <= 2 * average


def test_other_files_are_left_alone(tmp_path):
    names = ["checkpoint_last.pt", "checkpoint_best.pt", "checkpoint3.pt", "checkpoint_1_x.pt", "averaged.pt"]
    for name in (*names, *(f"checkpoint_1_{n}.pt" for n in range(9))):
        (tmp_path / name).touch()
    (tmp_path / "train.log").write_text("".join(VALID.format(9 - n, n) for n in range(9)))
    remove_old(tmp_path, tmp_path / "train.log", 2)
    assert {path.name for path in tmp_path.iterdir()} == {*names, "train.log", "checkpoint_1_7.pt", "checkpoint_1_8.pt"}


def test_of_a_log_that_was_lost_nothing_is_concluded(tmp_path):
    for number in range(1, 9):
        (tmp_path / f"checkpoint_1_{number}.pt").touch()
    log = tmp_path / "train.log"
    remove_old(tmp_path, log, 2)
    assert len(list(tmp_path.glob("*.pt"))) == 8
    log.write_text("".join(VALID.format(9 - number, number) for number in range(5, 9)))  # begun anew
    remove_old(tmp_path, log, 2)
    assert sorted(path.stem[-1] for path in tmp_path.glob("*.pt")) == ["1", "2", "3", "4", "7", "8"]


def test_the_best_by_bleu_and_those_that_follow_stay(tmp_path):
    log = tmp_path / "train.log"
    lines = []
    for number, bleu in enumerate((1.5, 9.5, 3.0, 9.5, 2.0), 1):
        (tmp_path / f"checkpoint_1_{number}.pt").touch()
        lines.append(VALID.format(9 - number, number).replace('"valid_ppl', f'"valid_bleu": "{bleu}", "valid_ppl'))
    log.write_text("".join(lines))
    remove_old(tmp_path, log, 1, BLEU)
    assert sorted(path.stem[-1] for path in tmp_path.glob("*.pt")) == ["2", "5"]


def test_disk_that_is_too_small_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**9))
    before_training.check_disk(tmp_path, 10**6, 80)  # 0.96 GB
    with pytest.raises(
        UsageError, match=r"^100 checkpoints of 12.0 MB: .*: about 1.20 GB are needed .* 1.00 GB are free. Make room"
    ):
        before_training.check_disk(tmp_path, 10**6, 100)
    with pytest.raises(UsageError, match=r"^9 runs, each with 10 checkpoints of 12.0 MB: .*: about 1.08 GB are needed"):
        before_training.check_disk(tmp_path, 10**6, 10, others=[tmp_path / f"none{n}" for n in range(8)])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "checkpoint_last.pt").write_bytes(bytes(10**8))
    before_training.check_disk(tmp_path, 10**6, 45, others=[tmp_path / "other"])  # 1.08 GB, of which 0.1 are there
    (tmp_path / "checkpoint_last.pt").write_bytes(bytes(3 * 10**8))
    before_training.check_disk(tmp_path, 10**6, 100)  # part of it is there already


def test_half_a_last_checkpoint_is_replaced(tmp_path):
    assert repair(tmp_path) == []
    checkpoint(tmp_path / "checkpoint_1_10.pt")
    checkpoint(tmp_path / "checkpoint_1_20.pt", dropout=0.25)
    whole = (tmp_path / "checkpoint_1_20.pt").read_bytes()
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(whole)
    assert repair(tmp_path) == []
    last.write_bytes(whole[: len(whole) // 2])
    assert "checkpoint_1_20.pt has taken its place" in repair(tmp_path)[0]
    assert last.read_bytes() == whole
    zeros("checkpoint_last.pt")(tmp_path)
    assert "checkpoint_1_20.pt has taken its place" in repair(tmp_path)[0]
    assert last.read_bytes() == whole


def test_a_last_checkpoint_that_was_removed_is_made_of_the_newest(tmp_path):
    checkpoint(tmp_path / "checkpoint_1_10.pt")
    newest = checkpoint(tmp_path / "checkpoint_1_20.pt", dropout=0.25)
    (sentence,) = repair(tmp_path)
    assert re.fullmatch(r".*checkpoint_last.pt is gone. checkpoint_1_20.pt has taken its place.", sentence)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == newest.read_bytes()


def test_half_a_checkpoint_alone_is_put_aside(tmp_path):
    (tmp_path / "checkpoint_last.pt").write_bytes(b"half")
    assert "the training begins again" in repair(tmp_path)[0]
    (aside,) = tmp_path.iterdir()
    assert aside.name == "checkpoint_last.pt.damaged"
    assert aside.read_bytes() == b"half"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        MemoryError(),
        RuntimeError("unable to mmap 99 bytes from file: Cannot allocate memory (12)"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_now_stays(tmp_path, monkeypatch, error):
    last, other = (checkpoint(tmp_path / f"checkpoint_{name}.pt") for name in ("last", "1_10"))
    before = last.read_bytes(), other.read_bytes()

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises((UsageError, MemoryError, RuntimeError)) as raised:
        repair(tmp_path)
    assert "damaged" not in str(raised.value)
    assert (last.read_bytes(), other.read_bytes()) == before
    assert len(list(tmp_path.glob("*.pt"))) == 2


def test_a_checkpoint_of_a_mixer_that_is_not_here_stays(tmp_path):
    torch.save({"cfg": {"model": {"_name": "my_mixer_base"}}}, tmp_path / "checkpoint_last.pt")
    assert repair(tmp_path) == []
    assert (tmp_path / "checkpoint_last.pt").exists()


def test_reads_records_and_skips_all_else(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(
        "2026-01-01 | INFO | fairseq_cli.train | something {}\n"
        '2026-01-01 | INFO | train_inner | {"epoch": 1, "wps": "3262.5", "num_updates": "20", "note": "text"}\n'
        '2026-01-01 | INFO | valid | {"epoch": 1, "valid_ppl": "15.2", "valid_num_updates": "20"}\n'
        '2026-01-01 | INFO | train_inner | {"epoch": 1, "wps": "32'
    )
    (train, valid) = records(log)
    assert train == ("train_inner", {"epoch": 1.0, "wps": 3262.5, "num_updates": 20.0, "note": "text"})
    assert valid[1]["valid_ppl"] == 15.2
    assert list(records(tmp_path / "missing")) == []


def test_a_validation_that_diverged_is_never_the_best(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(VALID.format("nan", 10) + VALID.format(5, 20))
    assert best_validation(log) == (5.0, 20)


@pytest.mark.parametrize(
    ("perplexities", "sentence"),
    [
        ({0: 9.0, 2: 8.0, 4: 7.5, 6: 7.5}, "was 9.00 at the beginning, and 7.50 at best, after 4 updates"),
        ({0: 9.0, 2: 9.5, 4: 9.25}, "made the model worse: its validation perplexity was 9.00 .* since then 9.25 at b"),
        ({2: 9.0, 4: 8.0}, "^$"),
        ({0: 9.0}, "^$"),
    ],
)
def test_what_became_of_the_perplexity_of_a_fine_tuning(perplexities, sentence):
    assert re.search(sentence, since_the_beginning(perplexities))


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ({0: 9.0, 2: 8.0, 4: 9.5, 6: 9.5}, "BLEU was 9.00 at the beginning, and 9.50 at best, after 4 updates"),
        ({0: 9.0, 2: 8.5, 4: 8.75}, "made the model worse: its validation BLEU was 9.00 .* since then 8.75 at best"),
        ({0: 0.0, 2: 0.0}, "^the validation BLEU was 0.00 at the beginning, and has not become better since$"),
    ],
)
def test_what_became_of_the_bleu_of_a_fine_tuning(found, sentence):
    assert re.search(sentence, since_the_beginning(found, BLEU))
