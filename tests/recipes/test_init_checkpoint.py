"""Trainings that begin with the weights of a checkpoint: fine-tuning."""

import hashlib
import json
import subprocess
import sys

import pytest
import torch

from posnet_fairseq.runs import before_training
from posnet_fairseq.runs.training import validations
from posnet_fairseq.shared.errors import UsageError
from support import commands
from support.checkpoints import assert_same_weights
from support.commands import NARROW
from support.corpus import prepared

# As loading on the meta device is: it tells that names and shapes fit.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter"),
    pytest.mark.thorough,  # 20 s: trains a model
]

SETTINGS = "--size tiny --interval 2 --average 1 --warmup 2 --tokens 200 --max-tokens 200 --max-positions 32 --cpus 1"
ALREADY = ("train", "average", "precompute")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A general and a special dataset, another one, and a model of the first."""
    folder = tmp_path_factory.mktemp("world")
    others = {"special": ("--like", str(folder / "general")), "other": ("--merges", "5")}
    for seed, (name, options) in enumerate({"general": (), **others}.items()):
        prepared(folder / f"{name}.text", folder / name, *options, train=60, valid=10, test=5, seed=seed)
    finish(folder, "general", "--updates", "4", *ALREADY)
    return folder


def finish(folder, data, *words, code=0):
    """What posnet-run says, in a process of its own, as it changes the environment."""
    words = ["corpus", "--data", folder / data, "--runs", folder / "runs", *SETTINGS.split(), *words]
    command = [sys.executable, "-m", "posnet_fairseq.cli.run", *map(str, words), f"--options={NARROW} --dropout 0.1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr


def model_of(folder, data="general", name="averaged.pt"):
    return folder / "runs" / data / "rposnet_tiny_s1" / name


def check(folder, path, words="", data="special", arch="rposnet_tiny"):
    arguments = [str(folder / data), "--user-dir", commands.USER_DIR, "--arch", arch, *NARROW.split()]
    arguments += f"--max-source-positions 32 --max-target-positions 32 --share-all-embeddings {words}".split()
    cfg = before_training.configuration(arguments)
    before_training.check_beginning(path, before_training.meta_model(cfg), cfg)


def test_fine_tuning_begins_with_the_weights(world):
    """With a learning rate of nearly nothing, it ends with them as well."""
    averaged = model_of(world)
    finish(world, "special", "--updates", "2", "--lr", "1e-12", "--init-from", averaged, *ALREADY)
    assert_same_weights(averaged, model_of(world, "special"), atol=1e-6, rtol=0)
    record = json.loads(model_of(world, "special", "train.json").read_text())
    assert record["settings"]["weights at the beginning"] == hashlib.sha256(averaged.read_bytes()).hexdigest()
    # It goes on from wherever the same checkpoint lies, and not from another one.
    same, other = world / "moved.pt", world / "other.pt"
    same.write_bytes(averaged.read_bytes())
    other.write_bytes(model_of(world, name="checkpoints/checkpoint_last.pt").read_bytes())
    finish(world, "special", "--updates", "2", "--lr", "1e-12", "--init-from", same, *ALREADY)
    with pytest.raises(AssertionError, match="weights at the beginning"):
        finish(world, "special", "--updates", "2", "--lr", "1e-12", "--init-from", other, *ALREADY)


def course_of(run):
    """Perplexities of a run by updates, and the record of its last attempt."""
    return validations(run / "train.log"), json.loads((run / "train.json").read_text())["attempts"][-1]


def test_a_training_that_makes_a_model_worse_is_told(world):
    """What it began with is the best checkpoint, which averaging takes; a training that was stopped there goes on."""
    words = ["--name", "worse", "--init-from", model_of(world), "--updates", "2", "--lr", "9", "--warmup", "1"]
    said = finish(world, "special", *words, "train", "average")
    run = world / "runs/special/worse_tiny_s1"
    found, attempt = course_of(run)
    assert list(found) == [0, 2]
    assert attempt["perplexity_at_the_beginning"] == attempt["best_perplexity"] == found[0] < found[2]
    assert (
        f"worse_tiny_s1: the training made the model worse: its validation perplexity was {found[0]:.2f} at the "
        f"beginning, and since then {found[2]:.2f} at best."
    ) in said
    first, last, ended = (run / f"checkpoints/checkpoint_{name}.pt" for name in ("1_0", "last", "1_2"))
    for path in (first, run / "averaged.pt"):
        assert_same_weights(model_of(world), path, atol=0, rtol=0)

    ended.rename(world / "ended.pt")
    last.write_bytes(first.read_bytes())
    record = json.loads((run / "train.json").read_text())
    (run / "train.json").write_text(json.dumps(record | {"finished": False}))
    finish(world, "special", *words, "train")
    assert_same_weights(world / "ended.pt", last, atol=0, rtol=0)
    assert (run / "train.log").read_text().count('"valid_num_updates": "0"') == 1


def test_fine_tuning_goes_on_with_other_batches_and_has_patience_of_its_own(world):
    general = model_of(world, name="checkpoints/checkpoint_last.pt")
    content = torch.load(general, weights_only=False)
    content["extra_state"]["patience"] = {"best": 0.0, "num_runs": 1}
    torch.save(content, world / "patient.pt")
    words = ["--name", "tuned", "--init-from", world / "patient.pt", "--patience", "2", "train"]
    finish(world, "special", "--updates", "4", *words)
    checkpoints = world / "runs/special/tuned_tiny_s1/checkpoints"
    assert list(checkpoints.glob("checkpoint_*_4.pt"))  # it is not ended at update 2 by what was better before
    finish(world, "special", "--updates", "6", *words, "--max-tokens", "100")
    assert list(checkpoints.glob("checkpoint_*_6.pt"))


@pytest.mark.parametrize("name", ["averaged.pt", "checkpoints/checkpoint_last.pt"])
def test_averaged_and_raw_checkpoints_are_taken(world, name):
    check(world, model_of(world, name=name), "--dropout 0.3")


@pytest.mark.parametrize(
    ("name", "more", "sentence"),
    [
        ("precomputed.pt", {}, "it has stored energies, which cannot be trained. Give the averaged.pt beside it."),
        ("averaged.pt", {"data": "other"}, "differs from .*other/dict.xx.txt. .* corpus --like .*general"),
        ("averaged.pt", {"arch": "shaw_tiny"}, "--arch: rposnet_tiny there, shaw_tiny here"),
        ("averaged.pt", {"words": "--activation-fn gelu"}, "other options .--activation-fn: relu there, gelu here"),
        ("train.json", {}, "train.json is a text, not a checkpoint"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_training(world, name, more, sentence):
    with pytest.raises(UsageError, match=sentence):
        check(world, model_of(world, name=name), **more)


def test_a_checkpoint_of_a_version_without_an_option_has_its_default(world, tmp_path):
    state = torch.load(model_of(world), weights_only=False)
    for name in ("compile", "encoder_gate", "encoder_position_embedding", "decoder_position_embedding"):
        del state["cfg"]["model"][name]
    torch.save(state, tmp_path / "old.pt")
    check(world, tmp_path / "old.pt", "--compile")
    with pytest.raises(UsageError, match=r"--decoder-position-embedding: None there, sinusoidal here"):
        check(world, tmp_path / "old.pt", "--decoder-position-embedding sinusoidal")


def test_dictionaries_of_another_size_are_found_where_the_model_s_own_are_gone(world, tmp_path):
    state = torch.load(model_of(world), weights_only=False)
    state["cfg"]["task"]["data"] = str(tmp_path / "gone")
    torch.save(state, tmp_path / "moved.pt")
    check(world, tmp_path / "moved.pt")
    with pytest.raises(UsageError, match=r"moved.pt: the source dictionary has \d+ entries, but the checkpoint was tr"):
        check(world, tmp_path / "moved.pt", data="other")
