"""Recipes from a dataset to a report, on a tiny corpus: processes, killed runs, comparisons."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import before_training
import commands
import pytest
import torch
from corpus import make_corpus
from training import fairseq_arguments
from training_log_of import losses

from posnet_data_prep.prepare import main as prepare
from posnet_fairseq.errors import UsageError

# A model so small, and so few updates, that nearly all the time goes into starting programs. All updates are in the
# first epoch: there fairseq resumes bit by bit.
SETTINGS = {
    "SIZE": "tiny",
    "UPDATES": "8",
    "INTERVAL": "2",
    "AVERAGE": "2",
    "WARMUP": "4",
    "TOKENS": "400",
    "MAX_TOKENS": "200",
    "MAX_POSITIONS": "32",
    "BEAM": "2",
    "MAX_LEN_A": "0",
    "MAX_LEN_B": "8",
    "CPUS": "1",
    "OMP_NUM_THREADS": "1",
    "OPTIONS": "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 32 --decoder-embed-dim 32 "
    "--encoder-ffn-embed-dim 32 --decoder-ffn-embed-dim 32 --dropout 0",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with a space in its name, a dataset in it."""
    folder = tmp_path_factory.mktemp("a world")
    make_corpus(folder)
    arguments = ["corpus", "--merges", "20", "--out", str(folder / "tiny corpus")]
    for name in ("train", "valid", "test"):
        arguments += [f"--{name}", str(folder / f"{name}.xx"), str(folder / f"{name}.yy")]
    prepare(arguments)
    return folder


def environment(world, runs, **more):
    places = {"DATA": str(world / "tiny corpus"), "RUNS": str(world / runs), "XDG_CACHE_HOME": str(world / "cache")}
    return os.environ | SETTINGS | places | more


def start(world, runs, *arguments, recipe="corpus", **more):
    """A recipe, in a process group of its own and in another working directory."""
    return subprocess.Popen(
        ["bash", commands.ROOT / "recipes" / f"{recipe}.sh", *arguments],
        env=environment(world, runs, **more),
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process, code=0):
    output, _ = process.communicate(timeout=600)
    assert process.returncode == code, output
    return output


def run_of(world, runs, name="rposnet", seed=1):
    return world / runs / "tiny corpus" / f"{name}_tiny_s{seed}"


def record(run, stage):
    return json.loads((run / f"{stage}.json").read_text())


def weights(run):
    return torch.load(run / "averaged.pt", weights_only=True)["model"]


@pytest.fixture(scope="module")
def one(world):
    """A run on one process, which takes two batches for an update."""
    output = finish(start(world, "runs"))
    assert "400 tokens an update: processes × --update-freq × --max-tokens = 1 × 2 × 200" in output
    assert "BLEU" in output
    return run_of(world, "runs")


def test_every_stage_leaves_a_log_and_a_record(one):
    for stage in ("train", "average", "precompute", "translate", "score"):
        assert (one / f"{stage}.log").exists()
        found = record(one, stage)
        assert found["finished"]
        (attempt,) = found["attempts"]
        assert attempt["outcome"] == "finished"
        assert attempt["seconds"] > 0
        assert attempt["peak_memory_bytes"] > 2**20
        assert attempt["versions"]["torch"] == torch.__version__
        assert attempt["machine"]["cores"] > 0
        assert set(attempt) >= {"command", "started", "commit"}
    assert record(one, "train")["settings"]["--seed"] == "1"
    assert len((one / "test.yy").read_text().splitlines()) == 61


def test_old_checkpoints_are_removed(one):
    numbered = sorted(path.name for path in (one / "checkpoints").glob("checkpoint_1_*.pt"))
    assert len(numbered) in (2, 3), numbered  # the best one and the next, and the last two
    assert "checkpoint_1_8.pt" in numbered


def test_disk_space_is_reckoned_well(one):
    (attempt,) = record(one, "train")["attempts"]
    model, _ = before_training.build(fairseq_arguments(attempt["command"]))
    expected = before_training.BYTES * before_training.trained_parameters(model)
    assert expected < (one / "checkpoints" / "checkpoint_last.pt").stat().st_size < expected + 2e5  # names, options


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--gate", "foo"], "fairseq-train: argument --gate: invalid choice: 'foo'"),
        (["--no-such-option"], "fairseq-train: unrecognized arguments: --no-such-option"),
        (["--irpe-on", "k"], "--irpe-on"),
    ],
)
def test_options_that_training_would_refuse_are_refused_before(world, options, sentence):
    arguments = [str(world / "tiny corpus"), "--user-dir", commands.USER_DIR, "--arch", "rposnet_tiny", *options]
    with pytest.raises(UsageError, match=sentence):
        before_training.build(arguments)


def test_finished_run_is_left_alone(world, one):
    before = {path: path.stat().st_mtime_ns for path in one.rglob("*") if path.name != ".lock"}
    output = finish(start(world, "runs"))
    for stage in ("train", "average", "precompute", "translate", "score"):
        assert f"rposnet_tiny_s1: {stage} is done" in output
    assert {path: path.stat().st_mtime_ns for path in one.rglob("*") if path.name != ".lock"} == before


def test_other_options_are_refused(world, one):
    output = finish(start(world, "runs", "train", LR="1e-3", OPTIONS=SETTINGS["OPTIONS"] + " --gate none"), code=2)
    assert "train was finished with other options (" in output
    assert "--lr: 2e-3 then, 1e-3 now" in output
    assert "--gate: not given then, none now" in output
    assert "NAME=" in output


def test_folders_of_runs_and_data_can_be_moved(world, one):
    shutil.copytree(world / "tiny corpus", world / "moved" / "tiny corpus")
    shutil.copytree(one, run_of(world, "moved runs"), copy_function=shutil.copy2)
    output = finish(start(world, "moved runs", DATA=str(world / "moved" / "tiny corpus")))
    assert output.count(" is done") == 5


def test_other_data_is_refused(world, one):
    shutil.copytree(world / "tiny corpus", world / "other" / "tiny corpus")
    path = world / "other" / "tiny corpus" / "dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"key": "other"}))
    for stage in ("train", "translate"):
        output = finish(start(world, "runs", stage, DATA=str(path.parent)), code=2)
        assert re.search(r"with other options \(dataset: \w+ then, other now\)", output)


def test_two_processes_learn_what_one_learns(world, one):
    """The same tokens in every update; sums of gradients in another order, in float32."""
    output = finish(start(world, "two processes", "train", "average", CPUS="2"))
    assert "400 tokens an update: processes × --update-freq × --max-tokens = 2 × 1 × 200" in output
    two = run_of(world, "two processes")
    expected, found = (losses(run / "train.log") for run in (one, two))
    assert len(expected) >= 8
    assert found == pytest.approx(expected, abs=2e-3)  # logs have three decimals
    for name, tensor in weights(one).items():
        torch.testing.assert_close(weights(two)[name], tensor, atol=1e-5, rtol=1e-4)
    assert "torchrun" in record(two, "train")["attempts"][0]["command"]


def test_goes_on_with_other_processes_and_batches(world):
    """fairseq counts batches: other ones begin the data again, and no setting of the run has changed."""
    run = run_of(world, "other processes")
    kill_in(world, "other processes", "train", (run / "checkpoints" / "checkpoint_last.pt").exists, CPUS="2")
    output = finish(start(world, "other processes", "train", MAX_TOKENS="400"))
    assert "other batches than before, so the data begin again" in output
    first, second = record(run, "train")["attempts"]
    assert first["command"][0] == "torchrun"
    assert second["command"][-1] == "--reset-dataloader"
    assert len(losses(run / "train.log")) >= 8


def test_second_machine_goes_on_as_the_first_has_found_to_be_right(world):
    """Both are this one. Only the first looks at the checkpoint, and what it finds holds for the second, too."""
    run = run_of(world, "then two machines")
    kill_in(world, "then two machines", "train", (run / "checkpoints" / "checkpoint_last.pt").exists)
    machines = {"NODES": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29542"}
    places = ("then two machines", "train")
    second, first = (start(world, *places, NODE_RANK=rank, **machines) for rank in ("1", "0"))
    assert "other batches than before, so the data begin again" in finish(first)
    assert "with --reset-dataloader, as the first machine has found to be right" in finish(second)
    assert len(losses(run / "train.log")) >= 8


@pytest.mark.slow
def test_two_machines_learn_what_one_learns(world, one):
    """Both are this one; the second only helps."""
    machines = {"NODES": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29541"}
    places = ("two machines", "train")
    first, second = (start(world, *places, NODE_RANK=rank, **machines) for rank in ("0", "1"))
    finish(first)
    finish(second)
    run = run_of(world, "two machines")
    assert losses(run / "train.log") == pytest.approx(losses(one / "train.log"), abs=2e-3)
    assert len(record(run, "train")["attempts"]) == 1


def children_of(folder):
    """Processes whose command line names the folder."""
    found = []
    for path in os.listdir("/proc"):
        if path.isdecimal():
            try:
                with open(f"/proc/{path}/cmdline", "rb") as file:
                    found += [path] if str(folder).encode() in file.read() else []
            except OSError:
                pass
    return found


def processes_of(runs):
    """Processes that were told a folder of runs, or name it."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            said = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
            found += [said] if os.fsencode(runs) in said else []
    return found


def wait_until(condition, what):
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def kill_in(world, runs, stage, condition, **more):
    """kill -9 of the recipe and all that its shell started, in the middle of a stage."""
    process = start(world, runs, **more)
    deadline = time.monotonic() + 300
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, f"{stage} never began"
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    run = run_of(world, runs)
    for _ in range(100):
        if not children_of(run):
            break
        time.sleep(0.1)
    assert not children_of(run), "something goes on after its recipe was killed"
    assert not record(run, stage)["finished"]


def test_killed_in_every_stage_it_comes_to_the_same(world, one):
    run = run_of(world, "killed")
    kill_in(world, "killed", "train", (run / "checkpoints" / "checkpoint_last.pt").exists)
    for stage in ("average", "translate", "score"):
        kill_in(world, "killed", stage, (run / f"{stage}.json").exists)
    finish(start(world, "killed"))
    attempts = record(run, "train")["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["interrupted", "finished"]
    assert losses(run / "train.log") == losses(one / "train.log")
    for name, tensor in weights(one).items():
        assert torch.equal(weights(run)[name], tensor), name
    assert (run / "test.yy").read_bytes() == (one / "test.yy").read_bytes()
    assert (run / "report" / "report.md").read_bytes() == (one / "report" / "report.md").read_bytes()


def test_comparison(world, one):
    """Two mixers, two seeds; one run is there already."""
    systems = world / "systems.txt"
    systems.write_text("# name mixer options\ntransformer_pos transformer_pos\nrposnet rposnet\n")
    comparing = {"recipe": "compare", "SEEDS": "1 2", "JOBS": "2"}
    # Interrupted before, once by kill -9 of it alone and once as by Ctrl-C.
    runs = [run_of(world, "runs", "transformer_pos"), run_of(world, "runs", "rposnet", 2)]
    for signal_, last, of_all in ((signal.SIGKILL, runs[0], False), (signal.SIGINT, runs[1], True)):
        process = start(world, "runs", str(systems), **comparing)
        wait_until(lambda last=last: (last / "checkpoints" / "checkpoint_last.pt").exists(), "no training began")
        os.killpg(process.pid, signal_) if of_all else os.kill(process.pid, signal_)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == (130 if of_all else -signal.SIGKILL), output
        assert "Traceback" not in output
        wait_until(lambda: not processes_of(world / "runs"), "something goes on after its comparison was interrupted")
    output = finish(start(world, "runs", str(systems), **comparing))
    assert "rposnet_tiny_s1 is done" in output
    folder = world / "runs" / "tiny corpus" / "compare_systems_tiny"
    for name in ("report.html", "report.md", "report.tex", "report.csv", "report.json"):
        assert (folder / "report" / name).stat().st_size > 100
    found = json.loads((folder / "report" / "report.json").read_text())
    (test_set,) = found["test_sets"]
    for system in ("transformer_pos", "rposnet"):
        assert len(test_set["scores"][system]["bleu"]["runs"]) == 2
        assert set(test_set["scores"][system]) == {"bleu", "chrf"}
        for column in ("params", "train tokens/s", "decode sent./s", "train memory"):
            assert found["columns"][column][system]
    assert found["baselines"] == ["transformer_pos"]
    attempts = [attempt["outcome"] for attempt in record(runs[0], "train")["attempts"]]
    assert attempts[0] == "interrupted"
    assert attempts[-1] == "finished"
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
