"""Recipes as shell scripts, and what a run would do: its commands, processes and checks, without a training."""

import json
import os
import re
import shutil
import stat
import subprocess
from hashlib import sha256

import pytest
import torch

from posnet_eval.metrics.comet import Comet
from posnet_fairseq.cli.run import main
from posnet_fairseq.runs import devices, single_run
from support import commands
from support.hostile import contents

RECIPES = commands.ROOT / "recipes"
SCRIPTS = sorted(
    [*RECIPES.rglob("*.sh"), *RECIPES.glob("*.sbatch"), commands.ROOT / "tests/run.sh", commands.ROOT / ".ci/run"]
)
DATASETS = ("iwslt14.de-en", "wmt14.en-de", "wmt14.en-fr", "wmt18.en-zh", "multi30k.en-de", "multi30k.en-fr")


def recipe(name, *arguments, code=0, **environment):
    """Its output on both channels."""
    done = subprocess.run(
        ["bash", RECIPES / f"{name}.sh", *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


@pytest.fixture
def shown(monkeypatch, capfd, tmp_path):
    """A function that returns the output of posnet-run, which shows its commands, on both channels."""
    monkeypatch.setattr("os.environ", dict(os.environ))
    monkeypatch.setattr("sys.argv", ["posnet-run"])
    monkeypatch.setattr(single_run, "elsewhere", lambda function, item: function(item))
    monkeypatch.chdir(tmp_path)

    def dry_run(target, *words, code=0):
        ended = None
        try:
            main([target, "--dry-run", *([] if "--gpus" in words else ["--cpus", "1"]), *map(str, words)])
        except SystemExit as error:
            ended = error.code
        output = "".join(capfd.readouterr())
        assert (ended or 0) == code, output
        return output

    return dry_run


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say(script):
    subprocess.run(["bash", "-n", script], check=True)
    done = subprocess.run(
        ["shellcheck", "-x", "-P", "SCRIPTDIR", script], capture_output=True, text=True, cwd=commands.ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_recipe_is_posnet_run(shown):
    words = ["--mixer", "shaw", "--dry-run", "train", "--options=--gate none", "--cpus", "1"]
    by_script, by_command = recipe("wmt14.en-de", *words), shown("wmt14.en-de", *words)
    assert sorted(by_script.splitlines()) == sorted(by_command.splitlines())
    assert "posnet-run: error: stage trian: choose one of" in recipe("wmt14.en-de", "trian", code=2)


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("script", [*sorted(RECIPES.glob("*.sh")), *(commands.ROOT / "tests").glob("*.sh")], ids=str)
def test_help_of_scripts_does_nothing_else(script, option, tmp_path):
    """In a copy of the checkout where nothing else would work."""
    copy = tmp_path / script.relative_to(commands.ROOT)
    copy.parent.mkdir()
    shutil.copy(script, copy)
    shutil.copytree(RECIPES / "lib", tmp_path / "recipes/lib")
    (tmp_path / "recipes/lib/environment.sh").write_text("exit 3\n")
    before = contents(tmp_path)
    for place, arguments in (("/", (option,)), (copy.parent, ("all", option))):
        name = copy if place == "/" else copy.name
        done = subprocess.run(["bash", name, *arguments], capture_output=True, text=True, cwd=place)
        assert (done.returncode, done.stderr) == (0, "")
        (_, first, *_) = script.read_text().split("\n")
        assert done.stdout.startswith(f"{first[2:]}\n")
        assert "set -euo" not in done.stdout
    assert contents(tmp_path) == before


@pytest.mark.parametrize("dataset", DATASETS)
def test_dry_run_shows_every_command_and_does_nothing(shown, dataset, tmp_path):
    places = ["--data", f"no data/{dataset}", "--runs", "no runs"]
    output = shown(dataset, "--mixer", "shaw", "--options=--shaw-values", "--name", "values", *places)
    order = "posnet-prepare fairseq-train posnet-average posnet-precompute posnet-translate posnet-score".split()
    assert [line.split()[0] for line in output.splitlines() if line.split()[0] in order] == order
    assert "--shaw-values" in output
    assert f"'no runs/{dataset}/values_" in output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("target", "more"), [("corpus", ()), ("compare", ("--mixers", "rposnet"))])
def test_a_switch_of_a_file_and_folders_elsewhere(shown, target, more, tmp_path):
    (tmp_path / "run.yaml").write_text("tensorboard: on\nruns: ../no runs\n")
    output = shown(target, "--data", "/no data", "--dataset", "wmt14.en-de", "--config", "run.yaml", *more)
    assert f"--tensorboard-logdir '{tmp_path.parent}/no runs/no data/rposnet_base_s1/tensorboard'" in output
    assert "fairseq-train '/no data' " in output
    assert "--tensorboard-logdir" not in shown("wmt14.en-de", "train")


# Sizes as in the paper, Section 5.3.
@pytest.mark.parametrize(
    ("size", "options"),
    [
        ("iwslt", "--lr 1.4e-3 --max-update 30000 --save-interval-updates 300 --num 30 --warmup-updates 4000"),
        ("base", "--lr 7e-4 --max-update 150000 --save-interval-updates 1000 --num 7 --beam 12 --lenpen 1"),
        ("big", "--lr 4.94e-4 --max-update 300000 --save-interval-updates 600 --num 20 --label-smoothing 0.1"),
    ],
)
def test_sizes_are_trained_as_in_the_paper(shown, size, options):
    output = shown("wmt14.en-de", "train", "average", "translate", "--size", size)
    words = options.split()
    for option, value in zip(words[::2], words[1::2], strict=True):
        assert f"{option} {value} " in output


@pytest.fixture
def on_gpus(monkeypatch, shown):
    """What a run would do on a machine with GPUs, which is not at hand."""

    def dry_run(gpus, *words, bf16=True):
        monkeypatch.setattr(devices, "gpus", lambda: (gpus, bf16))
        return shown("wmt14.en-de", "train", "translate", "--gpus", gpus, *words)

    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return dry_run


@pytest.mark.parametrize(
    ("gpus", "nodes", "batches", "tokens"),
    [(1, 1, 8, 3400), (2, 1, 4, 3400), (4, 1, 2, 3400), (8, 1, 1, 3400), (3, 1, 3, 3022), (8, 2, 1, 1700)],
)
def test_tokens_of_an_update_do_not_depend_on_the_machine(on_gpus, gpus, nodes, batches, tokens):
    output = on_gpus(gpus, "--nodes", nodes, "--master-addr", "first", "--node-rank", "0")
    assert f"--max-tokens {tokens} --update-freq {batches} " in output
    assert 0.999 < gpus * nodes * batches * tokens / 27200 <= 1
    assert "--bf16" in output
    assert "--cpu" not in output
    assert (f"torchrun --nnodes {nodes} --nproc-per-node {gpus} " in output) == (gpus * nodes > 1)
    assert (f"--processes {gpus}" in output) == (gpus > 1)
    if nodes > 1:
        assert "--node-rank 0 --master-addr first --master-port 29500" in output


@pytest.mark.parametrize("has_bf16", [True, False])
def test_bf16_on_slow_processors_is_said(shown, monkeypatch, has_bf16):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: has_bf16)
    output = shown("wmt14.en-de", "train", "--precision", "bf16")
    assert ("--precision bf16: this processor does not multiply in bf16, and training takes" in output) != has_bf16


def test_machines_that_do_not_know_one_another_are_refused(shown):
    assert "--nodes 2: run the stage train on each machine" in shown("wmt14.en-de", "--nodes", "2", "train", code=2)
    small = shown("wmt14.en-de", "--cpus", "2", "--max-tokens", "100", "train", code=2)
    assert "--tokens 27200: with --max-tokens 100 an update of 2 processes has batches of 100 tokens" in small


def program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_slurm_starts_the_training_on_every_machine(on_gpus, monkeypatch, tmp_path):
    program(tmp_path, "scontrol", 'printf "alpha\\nbeta\\n"')
    for name, value in {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "alpha,beta"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setattr("posnet_fairseq.cli.run._set_up_processes", lambda: None)
    output = on_gpus(4, "--nodes", "2")
    assert "srun --nodes 2 --ntasks 2 --ntasks-per-node 1 --kill-on-bad-exit=1 torchrun --nnodes 2" in output
    assert "--rdzv-backend c10d --rdzv-id 17 --rdzv-endpoint alpha:29500" in output
    assert "--max-tokens 3400 --update-freq 1 " in output


def test_batch_script_runs_a_recipe(tmp_path):
    batch = ["bash", RECIPES / "slurm.sbatch"]
    done = subprocess.run(batch, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no recipe is named" in done.stderr
    program(tmp_path, "recipe.sh", 'echo "$@"')
    for nodes, expected in (("2", "--nodes 2 all\n"), ("1", "all\n")):
        slurm = {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_NUM_NODES": nodes}
        done = subprocess.run([*batch, "recipe.sh", "all"], env=os.environ | slurm, capture_output=True, text=True)
        assert done.stdout == expected


def card(folder, **more):
    """A folder with as much of a dataset as a dry run looks at."""
    folder.mkdir()
    content = {"source_lang": "de", "target_lang": "en", "key": "k", "words": {"en": {"lowercase": True}}}
    (folder / "dataset.json").write_text(json.dumps(content | more))
    return folder


def test_translations_in_lower_case_are_scored_so(shown, tmp_path):
    (card(tmp_path / "data") / "test.de").touch()
    command = shown("corpus", "score", "--data", "data")
    assert "--lowercase" in command
    assert "--language-pair de-en" in command
    (card(tmp_path / "cased", words={"de": {"lowercase": True}, "en": {"lowercase": False}}) / "test.de").touch()
    assert "--lowercase" not in shown("corpus", "score", "--data", "cased")


def test_test_sets_of_several_directions(shown, tmp_path):
    """Each is translated into its language, and scored as that."""
    content = {"source_lang": "en", "target_lang": "de+fr", "tags": {"de": "<2de>", "fr": "<2fr>"}, "words": {}}
    (tmp_path / "data").mkdir()
    sets = {"sentences": {"train": 9, "test": 1, "test1": 1}, "test_sets": {"test": "en-fr", "test1": "en-de"}}
    (card(tmp_path / "data/several", **content, **sets) / "test.en").touch()
    said = shown("corpus", "translate", "score", "--data", "data/several").splitlines()
    for name, target in (("test", "fr"), ("test1", "de")):
        (translation,) = (line for line in said if f"several/{name}.en --output " in line)
        assert translation.endswith(f" --to {target}")
        (score,) = (line for line in said if f"--reference data/several/{name}.de+fr " in line)
        assert f" --language-pair en-{target} " in score


def test_missing_test_set_is_noticed_before_the_training(shown, tmp_path):
    card(tmp_path / "data")
    said = shown("corpus", "--data", "data", code=2)
    assert "has no test set (test.de): make it with posnet-prepare corpus --test" in said
    assert "fairseq-train" in shown("corpus", "--data", "data", "train", "average")


@pytest.mark.parametrize("more", [("corpus",), ("compare", "--mixers", "shaw")])
def test_missing_package_of_a_metric_is_noticed_before_the_training(monkeypatch, shown, more):
    monkeypatch.setattr(Comet, "package", "not-there")
    output = shown(*more, "--dataset", "wmt14.en-de", "--metrics", "bleu,comet", code=2)
    assert re.search(r"not-there, which is not installed\. Run .* -m pip install -e '\.\[comet\]'", output)


def test_two_vocabularies_leave_two_embeddings(shown, tmp_path):
    folder = card(tmp_path / "data")
    for language in ("de", "en"):
        (folder / f"dict.{language}.txt").write_text("word 1\n")
    assert "--share-all-embeddings" in shown("corpus", "train", "--data", "data")
    (folder / "dict.en.txt").write_text("other 1\n")
    assert "--share-decoder-input-output-embed" in shown("corpus", "train", "--data", "data")


def test_a_dictionary_that_was_exchanged_is_noticed_before_every_stage(shown, tmp_path):
    content = b"word 1\nother 1\n"
    hashes = {f"dict.{language}.txt": {"sha256": sha256(content).hexdigest()} for language in ("de", "en")}
    folder = card(tmp_path / "data", files=hashes)
    (folder / "test.de").touch()
    for language in ("de", "en"):
        (folder / f"dict.{language}.txt").write_bytes(content)
    shown("corpus", "--data", "data")
    (folder / "dict.en.txt").write_text("other 1\nword 1\n")
    for stage in ("train", "translate", "score"):
        said = shown("corpus", stage, "--data", "data", code=2)
        assert "data/dict.en.txt is not the file that data/dataset.json was made with. Copy it again" in said


def test_a_card_without_languages_is_one_sentence(shown, tmp_path):
    (card(tmp_path / "data") / "dataset.json").write_text('{"key": "k"}')
    assert "does not say both languages" in shown("corpus", "train", "--data", "data", code=2)
