"""Recipes from a dataset to a report, on a tiny corpus: processes, killed runs, comparisons."""

import importlib.metadata
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from types import SimpleNamespace

import pytest
import torch

from posnet_fairseq.runs import before_training
from posnet_fairseq.runs.command_stage import Work
from posnet_fairseq.runs.single_run import Run
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.processes import elsewhere
from support import commands
from support.checkpoints import assert_same_weights
from support.corpus import prepared
from support.signals import PATIENCE, default_signals, processes_of, wait_until
from support.training_log import losses

# A model so small, and so few updates, that nearly all the time goes into starting programs. An epoch has three updates
# (SENTENCES), so that of the checkpoints after 2, 4, 6 and 8 one ends an epoch.
SENTENCES = 140
SETTINGS = {
    "size": "tiny",
    "updates": 8,
    "interval": 2,
    "average": 2,
    "warmup": 4,
    "tokens": 400,
    "max_tokens": 200,
    "max_positions": 32,
    "beam": 2,
    "max_len_a": 0,
    "max_len_b": 8,
    "cpus": 1,
    "options": f"{commands.NARROW} --dropout 0",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with a space in its name, a dataset in it."""
    folder = tmp_path_factory.mktemp("a world")
    prepared(folder, folder / "tiny corpus", train=SENTENCES)
    return folder


def start(world, runs, *arguments, target="corpus", **more):
    """posnet-run, in a process group of its own and in another working directory."""
    settings = {"data": world / "tiny corpus", "runs": world / runs} | SETTINGS | more
    return subprocess.Popen(
        ["posnet-run", target, *arguments, *(f"{flag(name)}={value}" for name, value in settings.items())],
        env=os.environ | {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(world / "cache")},
        cwd=commands.ROOT / "tests",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=default_signals,
    )


def finish(process, code=0):
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, output
    return output


def run_of(world, runs, name="rposnet", seed=1):
    return world / runs / "tiny corpus" / f"{name}_tiny_s{seed}"


def record(run, stage):
    return json.loads((run / f"{stage}.json").read_text())


@pytest.fixture(scope="module")
def one(world):
    """A run on one process, which takes two batches for an update."""
    output = finish(start(world, "runs"))
    assert "400 tokens per update: 1 process × --update-freq 2 × --max-tokens 200" in output
    _, table = output.split("\ntest, xx-yy, 61 lines", 1)
    assert re.search(r"\n +BLEU +chrF *\nrposnet +\d", table), "aligned, not Markdown"
    place = f"report: {run_of(world, 'runs')}/report/report.html has the signatures ("
    assert output.splitlines()[-1].startswith(place)
    return run_of(world, "runs")


def test_every_stage_leaves_a_log_and_a_record(one):
    for stage in ("train", "average", "precompute", "translate", "score"):
        assert (one / f"{stage}.log").exists()
        found = record(one, stage)
        assert found["finished"]
        (attempt,) = found["attempts"]
        assert attempt["outcome"] == "finished"
        if stage not in ("average", "precompute"):  # of no time, rounded, and in this process
            assert attempt["seconds"] > 0
            assert attempt["peak_memory_bytes"] > 2**20
        assert attempt["versions"]["torch"] == importlib.metadata.version("torch")
        assert attempt["machine"]["cores"] > 0
        assert set(attempt) >= {"command", "started", "commit"}
    settings = record(one, "train")["settings"]
    assert (settings["--seed"], settings["--updates"], settings["--lr"]) == (1, 8, "2e-3")
    assert record(one, "translate")["attempts"][-1]["result"]["sentences_per_second"] > 0
    assert record(one, "score")["attempts"][-1]["result"] == {"remarks_left": 0}
    assert len((one / "test.yy").read_text().splitlines()) == 61


def test_the_averaged_checkpoint_records_the_search_of_the_run(one):
    recorded = torch.load(one / "averaged.pt", weights_only=True)["extra_state"]["search"]
    assert recorded == {"beam": 2, "lenpen": 1, "max_len_a": 0, "max_len_b": 8}


def test_old_checkpoints_are_removed(one):
    numbered = sorted(path.name for path in (one / "checkpoints").glob("checkpoint_[1-9]*.pt"))
    assert len(numbered) in (2, 3), numbered  # the best one and the next, and the last two
    assert numbered[-2:] == ["checkpoint_2_6.pt", "checkpoint_3_8.pt"]


def test_disk_space_is_reckoned_well(one):
    (attempt,) = record(one, "train")["attempts"]
    launch, *arguments = attempt["command"]
    assert launch == "fairseq-train"
    expected = before_training.BYTES * before_training.check_trainings({"a": arguments})["a"].parameters
    assert expected < (one / "checkpoints" / "checkpoint_last.pt").stat().st_size < expected + 2e5  # names, options


@pytest.mark.thorough  # 6 s
def test_check_before_a_training_knows_all_architectures(world):
    """In its own process, in which nothing else has registered them."""
    task = ["--arch", "gpt_a_attention", "--task", "language_modeling"]
    trainings = {"a": [str(world), "--arch", "rposnet_tiny"], "b": [str(world), *task]}
    assert elsewhere(before_training.check_trainings, trainings) == {}, "there are no data"


def test_a_schedule_that_depends_on_its_length_is_not_lengthened(world):
    arguments = [str(world / "tiny corpus"), "--arch", "rposnet_tiny", "--lr", "1", "--max-update", "4"]
    cosine = before_training.check_trainings({"a": [*arguments, "--lr-scheduler", "cosine"]})["a"].schedule
    before = {"optimization": {"max_update": 4}, "lr_scheduler": cosine}
    before_training.refuse_other_schedule(before, cosine, 4)
    sentence = "--updates 6: the training was begun with 4, and the learning rates of --lr-scheduler cosine"
    with pytest.raises(UsageError, match=sentence):
        before_training.refuse_other_schedule(before, {**cosine, "max_update": 6}, 6)


def test_a_finished_run_is_left_alone_also_in_another_folder_with_moved_data(world, one):
    shutil.copytree(world / "tiny corpus", world / "moved" / "tiny corpus")
    run = run_of(world, "moved runs")
    shutil.copytree(one, run, copy_function=shutil.copy2)
    score = record(run, "score")
    score["attempts"][-1]["result"]["remarks_left"] = 3
    (run / "score.json").write_text(json.dumps(score))
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.name != ".lock"}
    output = finish(start(world, "moved runs", data=str(world / "moved" / "tiny corpus")))
    for stage in ("train", "average", "precompute", "translate", "score"):
        assert f"rposnet_tiny_s1: {stage} is done" in output
    assert "\ntest, xx-yy, 61 lines" in output
    assert output.splitlines()[-1].startswith(f"report: {run}/report/report.html has 3 more remarks and the signatures")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.name != ".lock"} == before


def test_other_options_and_data_are_refused(world, one):
    shutil.copytree(world / "tiny corpus", world / "other" / "tiny corpus")
    path = world / "other" / "tiny corpus" / "dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"key": "other"}))
    options = SETTINGS["options"] + " --gate none"
    output = finish(start(world, "runs", "train", lr="1e-3", options=options, data=str(path.parent)), code=2)
    differences = r"--lr: 2e-3 then, 1e-3 now; dataset: \w+ then, other now; --gate: not given then, none now"
    assert re.search(rf"train was finished with other options \({differences}\). Give another folder", output)


def test_translations_are_searched_as_the_model_records(world, one):
    run = world / "another search" / one.relative_to(world / "runs")
    shutil.copytree(one, run)
    for name in ("translate.json", "test.yy"):
        (run / name).unlink()
    for stages in (("translate",), ("average", "translate")):
        output = finish(start(world, "another search", *stages, beam="3", lenpen="1.0"), code=2)
        assert "average has recorded another search (--beam: 2 then, 3 now). To do it again, remove " in output
    assert not (run / "translate.json").exists()


def test_checkpoints_of_a_finished_training_stay(world, one):
    """An average of fewer is refused only after the training, whose checkpoints cannot be made again."""
    before = names_in(one / "checkpoints")
    output = finish(start(world, "runs", "train", "average", average="1"), code=2)
    assert "average was finished with other options" in output
    assert names_in(one / "checkpoints") == before


@pytest.mark.parametrize(("variable", "threads"), [("2", [2]), ("3,1", [3]), ("0", []), ("all", [])])
def test_threads_are_those_of_the_first_level(monkeypatch, variable, threads):
    found = []
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    monkeypatch.setattr(torch, "set_num_threads", found.append)
    Run._limit_threads(SimpleNamespace(work=Work()))
    assert found == threads


@pytest.mark.thorough  # 30 s
def test_runs_of_two_seeds_on_two_test_sets(world, one):
    """The runs of the second seed are copies of those of the first."""
    data, run = world / "two tests", world / "two" / "two tests" / one.name
    shutil.copytree(world / "tiny corpus", data)
    shutil.copytree(one, run)
    for language in ("xx", "yy"):
        lines = (data / f"test.{language}").read_text().splitlines(keepends=True)
        (data / f"test1.{language}").write_text("".join(lines[:20]))
    card = json.loads((data / "dataset.json").read_text())
    card["sentences"]["test1"] = 20
    (data / "dataset.json").write_text(json.dumps(card))
    (run / "score.log").unlink()  # the report remains
    output = finish(start(world, "two", data=str(data)))
    for stage in ("train", "translate", "score"):
        assert f"{stage} is done" in output
    assert (run / "test1.yy").read_text().splitlines() == (run / "test.yy").read_text().splitlines()[:20]
    shutil.copytree(run, run.with_name("rposnet_tiny_s2"), copy_function=shutil.copy2)
    path = run.with_name("rposnet_tiny_s2") / "train.json"
    path.write_text(path.read_text().replace('"--seed": 1', '"--seed": 2'))
    (run.with_name("rposnet_tiny_s2") / "averaged.pt").touch()
    systems = world / "one_system.txt"
    systems.write_text("# name mixer options\nrposnet rposnet\n")
    output = finish(start(world, "two", str(systems), target="compare", data=str(data), seeds="1 2"))
    assert "rposnet_tiny_s1 is done" in output
    (report,) = (world / "two").glob("*/compare_*/report/report.json")
    test_sets = json.loads(report.read_text())["test_sets"]
    assert [test_set["size"] for test_set in test_sets] == [61, 20]
    assert [len(test_set["scores"]["rposnet"]["bleu"]["runs"]) for test_set in test_sets] == [2, 2]


@pytest.mark.thorough  # 25 s; quick: the recipe that one process runs
def test_two_processes_learn_what_one_learns(world, one):
    """The same tokens in every update; sums of gradients in another order, in float32."""
    output = finish(start(world, "two processes", "train", "average", cpus="2"))
    assert "400 tokens per update: 2 processes × --update-freq 1 × --max-tokens 200" in output
    two = run_of(world, "two processes")
    expected, found = (losses(run / "train.log") for run in (one, two))
    assert len(expected) >= 8
    assert found == pytest.approx(expected, abs=2e-3)  # logs have three decimals
    assert_same_weights(two / "averaged.pt", one / "averaged.pt", atol=1e-5, rtol=1e-4)
    assert "torchrun" in record(two, "train")["attempts"][0]["command"]


@pytest.mark.thorough  # 30 s
def test_second_machine_goes_on_as_the_first_has_found_to_be_right(world, one):
    """Both are this one. Only the first looks at the checkpoint, and what it finds holds for the second, too."""
    run = run_of(world, "then two machines")
    shutil.copytree(one, run)  # as if it had been killed after update 6
    shutil.copyfile(run / "checkpoints/checkpoint_2_6.pt", run / "checkpoints/checkpoint_last.pt")
    (run / "train.json").write_text(json.dumps(record(run, "train") | {"finished": False}))
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]  # a free one
    machines = {"nodes": 2, "master_addr": "localhost", "master_port": str(port)}
    places = ("then two machines", "train")
    second, first = (start(world, *places, node_rank=rank, **machines) for rank in ("1", "0"))
    assert "other batches than before, so the data begin again" in finish(first)
    assert "with --reset-dataloader, as the first machine has found to be right" in finish(second)
    assert updates_of(run / "checkpoints/checkpoint_last.pt") == 8


def kill_in(world, runs, stage, condition, **more):
    """kill -9 of the recipe and all that its shell started, in the middle of a stage."""
    process = start(world, runs, **more)
    wait_until(lambda: condition() or process.poll() is not None, f"{stage} never began")
    assert process.poll() is None, process.communicate()[0]
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    run = run_of(world, runs)
    wait_until(lambda: not processes_of(run), "something goes on after its recipe was killed")
    assert not record(run, stage)["finished"]


def block(checkpoints, name):
    """Let a training stop where it writes a checkpoint, in the middle of the file: it waits for a reader of a pipe."""
    checkpoints.mkdir(parents=True, exist_ok=True)
    os.mkfifo(checkpoints / f"{name}.tmp")


def writes(run, name):
    """Whether a training has begun to write a checkpoint."""
    log = run / "train.log"
    return log.exists() and f"Saving checkpoint to {run / 'checkpoints' / name}" in log.read_text()


def unblock(checkpoints, name):
    """Leave there what a training leaves that was killed while it wrote."""
    path = checkpoints / f"{name}.tmp"
    path.unlink()
    path.write_bytes(b"PK half a checkpoint")


@pytest.mark.thorough  # 60 s: a recipe is killed in every stage that another process does
def test_killed_in_every_stage_it_comes_to_the_same(world, one):
    """The training: at the end of an epoch, and in the middle of one while checkpoint_last.pt is copied."""
    run = run_of(world, "killed")
    checkpoints, log = run / "checkpoints", run / "train.log"
    for name, updates in (("checkpoint_2_4.pt", 3), ("checkpoint_3_8.pt", 6)):
        block(checkpoints, name)
        kill_in(world, "killed", "train", lambda name=name: writes(run, name))
        unblock(checkpoints, name)
        assert updates_of(checkpoints / "checkpoint_last.pt") == updates
    last = checkpoints / "checkpoint_last.pt"
    os.truncate(last, last.stat().st_size // 2)
    for stage in ("translate", "score"):
        kill_in(world, "killed", stage, (run / f"{stage}.json").exists)
    finish(start(world, "killed"))
    attempts = record(run, "train")["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == [*["interrupted"] * 2, "finished"]
    assert losses(log) == losses(one / "train.log")
    assert_same_weights(run / "averaged.pt", one / "averaged.pt", atol=0, rtol=0)
    assert (run / "test.yy").read_bytes() == (one / "test.yy").read_bytes()
    assert (run / "report" / "report.md").read_bytes() == (one / "report" / "report.md").read_bytes()
    assert names_in(checkpoints) == names_in(one / "checkpoints")


def updates_of(checkpoint):
    return torch.load(checkpoint, weights_only=True)["optimizer_history"][-1]["num_updates"]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


COUNTING = """import os, sys
with open(os.environ["STARTED"], "a") as file:
    file.write(" ".join(sys.orig_argv).replace("\\n", " ") + "\\n")
"""


@pytest.mark.thorough  # 60 s: trains and compares systems
def test_comparison(world, monkeypatch):
    """It starts few processes, of which few import fairseq, and reports what its runs have measured."""
    (world / "site").mkdir()
    (world / "site/sitecustomize.py").write_text(COUNTING)
    for name, value in {"PYTHONPATH": str(world / "site"), "STARTED": str(world / "started")}.items():
        monkeypatch.setenv(name, value)
    comparing = {"target": "compare", "mixers": "transformer_pos,rposnet", "jobs": 2}
    finish(start(world, "compared", **comparing))
    started = (world / "started").read_text().splitlines()
    assert len(started) <= 8, started
    assert sum("fairseq-train" in words or "spawn_main" in words for words in started) == 3, started
    folder = world / "compared" / "tiny corpus" / "compare_transformer_pos+rposnet_tiny"
    for name in ("report.html", "report.md", "report.tex", "report.csv", "report.json"):
        assert (folder / "report" / name).stat().st_size > 100
    found = json.loads((folder / "report" / "report.json").read_text())
    (test_set,) = found["test_sets"]
    columns = {name.removesuffix(" *"): of for name, of in found["columns"].items()}  # *: the machine was busy
    for system in ("transformer_pos", "rposnet"):
        assert set(test_set["scores"][system]) == {"bleu", "chrf"}
        for column in ("params", "train tokens/s", "decode sent./s", "train memory"):
            assert columns[column][system]
    assert found["baselines"] == ["transformer_pos"]
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    plan = folder / "comparison.yaml"
    plan.write_text(plan.read_text().replace("rposnet: rposnet", "rposnet: rPosNet (ours)"))
    output = finish(start(world, "compared", **comparing))
    assert "rposnet_tiny_s1 is done" in output
    assert "\nrPosNet (ours) " in output
    assert "Other differences from transformer_pos: rPosNet (ours) has --gate gelu (transformer_pos: none)" in output
    assert output.splitlines()[-1].endswith("rename systems in comparison.yaml beside it")
    assert len((world / "started").read_text().splitlines()) == len(started) + 2, "no check of what is trained"


@pytest.mark.thorough  # 20 s: a training, twice
def test_patience_ends_a_training_at_the_same_update_after_an_interruption(world):
    """With so small a learning rate no perplexity after update 2 is better: those at 3 (an epoch's end), 4 and 6."""
    still = {"lr": "1e-9", "patience": 3}
    run = run_of(world, "patient")
    checkpoints = run / "checkpoints"
    block(checkpoints, "checkpoint_2_4.pt")
    kill_in(world, "patient", "train", lambda: writes(run, "checkpoint_2_4.pt"), **still)
    unblock(checkpoints, "checkpoint_2_4.pt")
    output = finish(start(world, "patient", "train", "average", **still))
    sentence = "rposnet_tiny_s1: training stopped after 6 updates: no better perplexity in the last 3 validations"
    assert sentence in output
    assert updates_of(checkpoints / "checkpoint_last.pt") == 6
    assert (run / "averaged.pt").exists()
    output = finish(start(world, "patient", "train", **still))
    assert "rposnet_tiny_s1: train is done" in output
    assert "ended after" not in output


@pytest.mark.thorough  # 30 s: two trainings; quick: a stage whose number has grown
def test_a_finished_run_can_be_lengthened(world, one):
    """It ends with the same weights as a run that was as long from the start."""
    run, stages = run_of(world, "lengthened"), ("train", "average")
    finish(start(world, "lengthened", *stages, updates="5"))
    assert updates_of(run / "checkpoints" / "checkpoint_last.pt") == 5
    output = finish(start(world, "lengthened", *stages))
    assert "rposnet_tiny_s1: training continues from update 5 to 8" in output
    assert " is done" not in output
    assert_same_weights(run / "averaged.pt", one / "averaged.pt", atol=0, rtol=0)
    assert names_in(run / "checkpoints") == names_in(one / "checkpoints")
    found = record(run, "train")
    assert found["seconds"] == pytest.approx(sum(attempt["seconds"] for attempt in found["attempts"]), abs=0.1)
