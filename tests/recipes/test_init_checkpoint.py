"""Trainings that begin with the weights of a checkpoint: fine-tuning."""

import hashlib
import json
import subprocess
import sys

import pytest
import torch

from posnet_fairseq.runs import before_training
from posnet_fairseq.runs.training import BLEU, validations
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.dictionary import Dictionary
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
    return before_training.check_beginning(path, *before_training.meta_model(cfg), cfg)


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


@pytest.mark.parametrize("processes", [1, 2])
def test_words_that_both_dictionaries_have_keep_their_rows(world, processes):
    """With a learning rate of nearly nothing, to the end; the sentence is said once, and in the log, too."""
    words = ["--updates", "2", "--lr", "1e-12", "--init-from", model_of(world), "train"]
    words += ["--cpus", str(processes), "--name", f"of{processes}"]
    said = finish(world, "other", *words)
    sentences = check(world, model_of(world), data="other")
    assert [sentence.partition(":")[0] for sentence in sentences] == ["words of both sides"]
    run = world / f"runs/other/of{processes}_tiny_s1"
    assert all(sentences[0] in text for text in (said, (run / "train.log").read_text()))
    last = torch.load(run / "checkpoints/checkpoint_last.pt", weights_only=False)["model"]
    trained = torch.load(model_of(world), weights_only=False)["model"]
    there, here = (Dictionary.load(world / name / "dict.xx.txt") for name in ("general", "other"))
    common = [word for word in here.symbols if word in there.symbols]
    assert 4 < len(common) < len(here) != len(there)
    for name in ("encoder.embed_tokens.weight", "decoder.output_projection.weight"):
        rows = [of[name][[words.index(word) for word in common]] for of, words in ((last, here), (trained, there))]
        torch.testing.assert_close(*rows, rtol=0, atol=1e-6)
    assert "words of" not in finish(world, "other", "--updates", "4", *words[2:])  # it goes on, and does not begin


def test_the_best_checkpoint_is_that_with_the_most_bleu(world):
    """With a learning rate of nearly nothing no translation changes, and the first of equals is the best."""
    words = ["--name", "bleu", "--updates", "8", "--lr", "1e-12", "--stop-on", "bleu", "--patience", "2"]
    said = finish(world, "special", *words, "--init-from", model_of(world), "train", "average")
    run = world / "runs/special/bleu_tiny_s1"
    found = validations(run / "train.log", BLEU)
    assert len(set(found.values())) == 1
    attempt = json.loads((run / "train.json").read_text())["attempts"][-1]
    assert attempt["bleu_at_the_beginning"] == attempt["best_bleu"] == found[0]
    assert "perplexity_at_the_beginning" not in attempt
    assert f"the validation BLEU was {found[0]:.2f} at the beginning, and has not become better since" in said
    assert f"{max(found)} updates: no better BLEU in the last 2 validations (--patience)" in said
    assert f"validation bleu {found[0]:.4f}" in (run / "average.log").read_text()
    settings = json.loads((run / "train.json").read_text())["settings"]
    assert settings["--stop-on"] == "bleu"
    assert "--stop-on" not in json.loads(model_of(world, name="train.json").read_text())["settings"]


@pytest.mark.parametrize("name", ["averaged.pt", "checkpoints/checkpoint_last.pt"])
def test_averaged_and_raw_checkpoints_are_taken(world, name):
    check(world, model_of(world, name=name), "--dropout 0.3")


@pytest.mark.parametrize(
    ("name", "more", "sentence"),
    [
        ("precomputed.pt", {}, "it has stored energies, which cannot be trained. Give the averaged.pt beside it."),
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
