"""Recipes as shell scripts: what they refuse, what they would run, and where."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys

import pytest

from posnet_eval.metrics import METRICS
from posnet_eval.metrics.comet import Comet
from posnet_fairseq.cli.run import find_target
from posnet_fairseq.runs import machine
from posnet_fairseq.runs.run import run
from posnet_fairseq.runs.run_settings import RunSettings
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain
from support import commands
from support.hostile import contents

RECIPES = commands.ROOT / "recipes"
SCRIPTS = sorted(
    [*RECIPES.rglob("*.sh"), *RECIPES.glob("*.sbatch"), commands.ROOT / "tests/run.sh", commands.ROOT / ".ci/run"]
)
DATASETS = ("iwslt14.de-en", "wmt14.en-de", "wmt14.en-fr", "wmt18.en-zh", "multi30k.en-de", "multi30k.en-fr")


def recipe(name, *arguments, code=0, **environment):
    """Its output on both channels, from another working directory."""
    done = subprocess.run(
        ["bash", RECIPES / f"{name}.sh", *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
    )
    assert done.returncode == code, done.stdout
    return done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say(script):
    subprocess.run(["bash", "-n", script], check=True)
    done = subprocess.run(
        ["shellcheck", "-x", "-P", "SCRIPTDIR", script], capture_output=True, text=True, cwd=commands.ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "arguments", "environment", "sentence"),
    [
        ("corpus", (), {}, "corpus: error: no data is named: set DATASET=quickstart.en-de, or DATA=FOLDER"),
        ("corpus", (), {"DATA": "/no/such"}, "/no/such: posnet-prepare has not made this folder"),
        ("corpus", ("train",), {"DATA": "/no/such"}, "/no/such: there is no dataset yet. Run the stage prepare first"),
        ("wmt14.en-de", ("trian",), {}, "wmt14.en-de: error: trian: choose from prepare train average"),
        ("wmt14.en-de", (), {"SIZE": "huge"}, "SIZE=huge: choose one of tiny multi30k iwslt base big"),
        ("wmt14.en-de", (), {"SEED": "x"}, "SEED=x: give a whole number"),
        ("wmt14.en-de", (), {"UPDATES": "1e5"}, "UPDATES=1e5: give a whole number"),
        ("wmt14.en-de", (), {"MIXER": "a b"}, "MIXER=a b: name one mixer"),
        ("wmt14.en-de", (), {"LR": "fast"}, "LR=fast: give a number"),
        ("wmt14.en-de", (), {"METRICS": "bleu,blue"}, "METRICS=bleu,blue: choose from bleu, chrf, ter, bleurt"),
        ("wmt14.en-de", (), {"OPTIONS": "--update-freq 7"}, "--update-freq has a variable of its own"),
        ("wmt14.en-de", (), {"OPTIONS": "--x 'a b'"}, "quotes are not understood there"),
        ("wmt14.en-de", (), {"NODE_RANK": "x"}, "NODE_RANK=x: give 0, 1"),
        ("wmt14.en-de", (), {"CPUS": "2", "MAX_TOKENS": "100", "DRY_RUN": "1"}, "make batches of 100 tokens on 2"),
        ("compare", (), {"DATASET": "wmt14.en-de", "MIXERS": "shaw", "JOBS": "2", "NODES": "2"}, "Leave JOBS out"),
        ("wmt14.en-de", (), {"NAME": "a b"}, "NAME=a b: give a name of letters"),
        ("wmt14.en-de", (), {"NAME": "../x"}, "NAME=../x: give a name of letters"),
        ("wmt14.en-de", (), {"UPDATES": "3000"}, "AVERAGE=7: 3000 updates with a checkpoint every 1000 make 3"),
        ("wmt14.en-de", (), {"GPUS": "1", "CPUS": "1"}, "GPUS=1 and CPUS=1: give one of them"),
        ("wmt14.en-de", (), {"GPUS": "99"}, "GPUS=99: this machine has"),
        ("wmt14.en-de", (), {"CPUS": "1", "PRECISION": "bf16"}, "PRECISION=bf16: fairseq trains with fp32 on CPUs"),
        ("wmt14.en-de", (), {"PRECISION": "int8"}, "PRECISION=int8: choose one of"),
        ("wmt14.en-de", (), {"CPUS": "1", "NODES": "2", "DRY_RUN": "1"}, "NODES=2: run the stage train on each"),
        ("compare", ("a", "b"), {"DATA": "/no/such"}, "2 files were given"),
        ("compare", (), {"DATASET": "wmt14.en-de", "DRY_RUN": "1"}, "nothing to compare. Give a file"),
        ("compare", (), {"DATASET": "wmt14.en-de", "DRY_RUN": "1", "MIXERS": "rposnt"}, "Did you mean rposnet"),
        ("compare", (), {"DATASET": "wmt14.en-de", "DRY_RUN": "1", "MIXERS": "attention"}, "called transformer_pos"),
        ("compare", ("/no/such",), {"DATASET": "wmt14.en-de", "DRY_RUN": "1"}, "/no/such: No such file"),
        ("quickstart", (), {"UPDATES": "many"}, "quickstart: error: UPDATES=many: give a whole"),
        ("quickstart", (), {"MIXERS": " "}, "quickstart: error: MIXERS is empty"),
        ("quickstart", (), {"UPDATE": "300"}, "UPDATE=300: quickstart has no such setting. Did you mean UPDATES? If"),
        ("quickstart", (), {"MIXER": "shaw"}, "Did you mean MIXERS?"),
        ("compare", (), {"DATASET": "wmt14.en-de", "MIXERS": "shaw", "SEED": "2"}, "Did you mean SEEDS?"),
        ("wmt14.en-de", (), {"max_token": "300"}, "max_token=300: corpus has no such setting. Did you mean MAX_TOKENS"),
        ("lm", (), {"UPDATES": "9"}, "Did you mean LM_UPDATES?"),
        ("lm", (), {"LM_UPDATES": "0"}, "lm: error: LM_UPDATES=0: give a whole number"),
        ("lm", (), {"LM_SEED": "x"}, "lm: error: LM_SEED=x: give a whole number"),
        ("lm", (), {"LM_SIZE": "big"}, "lm: error: LM_SIZE=big: choose one of a b c"),
        ("lm", ("/no/such file.txt",), {}, "/no/such file.txt: there is no such file"),
        ("lm", ("one.txt", "two.txt"), {}, "lm: error: 2 files were given. Give one"),
    ],
)  # fmt: skip
@pytest.mark.quick_cases(1)
def test_bad_settings_are_one_sentence(name, arguments, environment, sentence):
    output = recipe(name, *arguments, code=2, **environment)
    assert sentence in output
    assert "Traceback" not in output
    assert "unbound" not in output


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
def test_dry_run_shows_every_command_and_does_nothing(dataset, tmp_path):
    places = {"DATA": str(tmp_path / "no data" / dataset), "RUNS": str(tmp_path / "no runs")}
    output = recipe(dataset, DRY_RUN="1", CPUS="1", MIXER="shaw", OPTIONS="--shaw-values", NAME="values", **places)
    lines = output.splitlines()
    order = (
        "posnet-prepare",
        "fairseq-train",
        "posnet-average",
        "posnet-precompute",
        "posnet-translate",
        "posnet-score",
    )
    found = [line.split()[0] for line in lines if line.split()[0] in order]
    assert tuple(found) == order
    assert "--shaw-values" in output
    assert f"{dataset}/values_" in output
    assert not list(tmp_path.iterdir())


def test_options_may_stand_in_several_lines():
    assert "--gate none --dropout 0" in recipe("wmt14.en-de", DRY_RUN="1", CPUS="1", OPTIONS="--gate none\n--dropout 0")


def test_switches_are_off_with_0():
    output = recipe("wmt14.en-de", "train", DRY_RUN="1", TENSORBOARD="0", CPUS="1")
    assert "--tensorboard-logdir" not in output
    assert "there is no dataset yet" in recipe("wmt14.en-de", "train", DRY_RUN="0", CPUS="1", DATA="/no/such", code=2)


def test_metrics_are_those_of_posnet_score():
    for metric in METRICS:
        recipe("wmt14.en-de", DRY_RUN="1", CPUS="1", METRICS=metric)


@pytest.mark.thorough  # 6 s: starts processes
def test_folders_are_relative_to_where_the_caller_is():
    for name, more in (("corpus", {}), ("compare", {"MIXERS": "rposnet"})):
        output = recipe(name, DRY_RUN="1", CPUS="1", DATA="no data", RUNS="no runs", DATASET="wmt14.en-de", **more)
        assert "--save-dir /no\\ runs/no\\ data/rposnet_base_s1/checkpoints" in output
        assert "fairseq-train /no\\ data " in output


# Sizes as in the paper, Section 5.3.
@pytest.mark.parametrize(
    ("size", "options"),
    [
        ("iwslt", "--lr 1.4e-3 --max-update 30000 --save-interval-updates 300 --num 30 --warmup-updates 4000"),
        ("base", "--lr 7e-4 --max-update 150000 --save-interval-updates 1000 --num 7 --beam 12 --lenpen 1"),
        ("big", "--lr 4.94e-4 --max-update 300000 --save-interval-updates 600 --num 20 --label-smoothing 0.1"),
    ],
)
def test_sizes_are_trained_as_in_the_paper(size, options):
    output = recipe("wmt14.en-de", "train", "average", "translate", DRY_RUN="1", CPUS="1", SIZE=size)
    words = options.split()
    for option, value in zip(words[::2], words[1::2], strict=True):
        assert f"{option} {value} " in output


@pytest.fixture
def on_gpus(monkeypatch, capsys, tmp_path):
    """What a recipe would run on a machine with GPUs, which is not at hand."""

    def dry_run(gpus, bf16=True, **environment):
        monkeypatch.setattr(machine, "gpus", lambda: (gpus, bf16))
        monkeypatch.setattr(machine, "gpu_memory", lambda count: 80 * 2**30)
        monkeypatch.setenv("POSNET_RECIPE", str(RECIPES / "wmt14.en-de.sh"))
        monkeypatch.chdir(commands.ROOT)
        given = {"DATASET": "wmt14.en-de", "SIZE": "base", "DRY_RUN": "1", "MAX_TOKENS": "3400"} | environment
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        run(RunSettings.read("corpus", ["train", "translate"], ""))
        return "".join(capsys.readouterr())

    for name in ("CPUS", "GPUS", "DATA", "RUNS", "NODES", "NODE_RANK", "MASTER_ADDR", "SLURM_JOB_ID", "PRECISION"):
        monkeypatch.delenv(name, raising=False)
    return dry_run


@pytest.mark.parametrize(
    ("gpus", "nodes", "batches", "tokens"),
    [(1, 1, 8, 3400), (2, 1, 4, 3400), (4, 1, 2, 3400), (8, 1, 1, 3400), (3, 1, 3, 3022), (8, 2, 1, 1700)],
)
def test_tokens_of_an_update_do_not_depend_on_the_machine(on_gpus, gpus, nodes, batches, tokens):
    output = on_gpus(gpus, NODES=str(nodes), MASTER_ADDR="first", NODE_RANK="0")
    assert f"--max-tokens {tokens} --update-freq {batches} " in output
    assert 0.999 < gpus * nodes * batches * tokens / 27200 <= 1
    assert "--bf16" in output
    assert "--cpu" not in output
    assert (f"torchrun --nnodes {nodes} --nproc-per-node {gpus} " in output) == (gpus * nodes > 1)
    assert (f"--processes {gpus}" in output) == (gpus > 1)
    if nodes > 1:
        assert "--node-rank 0 --master-addr first --master-port 29500" in output


def test_batches_are_those_that_fit_into_the_gpus(on_gpus):
    output = on_gpus(2, MAX_TOKENS="", SIZE="tiny")
    assert re.search(
        r"batches of 600 tokens: a training step takes about 0\.\d GiB, and the GPU has 80.0 \(MAX_T", output
    )
    assert "--max-tokens 600 --update-freq 1 " in output


def test_precision_of_older_gpus(on_gpus):
    assert "--bf16" not in on_gpus(1, bf16=False)
    assert "--fp16" in on_gpus(1, PRECISION="fp16")


def program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_slurm_starts_the_training_on_every_machine(on_gpus, monkeypatch, tmp_path):
    program(tmp_path, "scontrol", 'printf "alpha\\nbeta\\n"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    slurm = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "alpha,beta", "NODES": "2"}
    output = on_gpus(4, **slurm)
    assert "srun --nodes 2 --ntasks 2 --ntasks-per-node 1 --kill-on-bad-exit=1 torchrun --nnodes 2" in output
    assert (
        "--rdzv-backend c10d --rdzv-id 17 --rdzv-endpoint alpha:29500 posnet_fairseq/runs/distributed/rank.py" in output
    )
    assert "--max-tokens 3400 --update-freq 1 " in output


def test_batch_script_runs_a_recipe(tmp_path):
    batch = ["bash", RECIPES / "slurm.sbatch"]
    done = subprocess.run(batch, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no recipe is named" in done.stderr
    program(tmp_path, "recipe.sh", 'echo "$NODES machines, $1"')
    slurm = {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_NUM_NODES": "2"}
    done = subprocess.run([*batch, "recipe.sh", "all"], env=os.environ | slurm, capture_output=True, text=True)
    assert done.stdout == "2 machines, all\n"


def test_tensorboard_is_on_by_an_option():
    assert "--tensorboard-logdir" not in recipe("wmt14.en-de", "train", DRY_RUN="1", CPUS="1")
    output = recipe("wmt14.en-de", "train", DRY_RUN="1", CPUS="1", TENSORBOARD="1")
    assert "--tensorboard-logdir runs/wmt14.en-de/rposnet_base_s1/tensorboard" in output


def card(folder, **more):
    """A folder with as much of a dataset as a dry run looks at."""
    folder.mkdir()
    content = {"source_lang": "de", "target_lang": "en", "key": "k", "words": {"en": {"lowercase": True}}}
    (folder / "dataset.json").write_text(json.dumps(content | more))
    return folder


def test_translations_in_lower_case_are_scored_so(tmp_path):
    (card(tmp_path / "data") / "test.de").touch()
    settings = {"DATA": str(tmp_path / "data"), "DRY_RUN": "1", "CPUS": "1"}
    assert "--lowercase" in recipe("corpus", "score", **settings)
    (card(tmp_path / "cased", words={"de": {"lowercase": True}, "en": {"lowercase": False}}) / "test.de").touch()
    assert "--lowercase" not in recipe("corpus", "score", **settings | {"DATA": str(tmp_path / "cased")})


def test_missing_test_set_is_noticed_before_the_training(tmp_path):
    settings = {"DATA": str(card(tmp_path / "data")), "DRY_RUN": "1", "CPUS": "1"}
    assert "has no test set (test.de): make it with posnet-prepare corpus --test" in recipe(
        "corpus", code=2, **settings
    )
    assert "fairseq-train" in recipe("corpus", "train", "average", **settings)


@pytest.mark.parametrize("target", ["corpus", "compare"])
def test_missing_package_of_a_metric_is_noticed_before_the_training(monkeypatch, target):
    monkeypatch.setattr(Comet, "package", "not-there")
    settings, function, *_ = find_target(target)
    texts = {"dataset": "wmt14.en-de", "mixers": "shaw", "metrics": "bleu,comet", "cpus": "1", "dry_run": "1"}
    found = settings.parsed({name: text for name, text in texts.items() if name in settings.fields()})
    with pytest.raises(UsageError, match=r"not-there, which is not installed\. Run .* -m pip install -e '\.\[comet\]'"):
        function(found)


def test_advice_of_a_training_names_settings_of_the_run(monkeypatch, tmp_path):
    def diverge(*_):
        raise UsageError(explain(FloatingPointError("gradients are Nan/Inf")))

    monkeypatch.setattr("posnet_fairseq.runs.run.train", diverge)
    card(tmp_path / "data")
    texts = {"data": str(tmp_path / "data"), "runs": str(tmp_path / "runs"), "cpus": "1", "stages": "train"}
    with pytest.raises(UsageError, match=r"--lr, a longer --warmup or --options=--clip-norm 1, .*\(--init-from\)"):
        run(RunSettings.parsed(texts))


def test_missing_tokenizer_of_a_language_is_noticed_before_the_training(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "MeCab", None)
    (card(tmp_path / "data", target_lang="ja") / "test.de").touch()
    found = RunSettings.parsed({"data": str(tmp_path / "data"), "cpus": "1", "dry_run": "1"})
    with pytest.raises(UsageError, match="tokeniser for ja is not installed") as raised:
        run(found)
    assert "--tokenize" not in str(raised.value)  # posnet-run has no such option


def test_two_vocabularies_leave_two_embeddings(tmp_path):
    folder = card(tmp_path / "data")
    settings = {"DATA": str(folder), "DRY_RUN": "1", "CPUS": "1"}
    for language in ("de", "en"):
        (folder / f"dict.{language}.txt").write_text("word 1\n")
    assert "--share-all-embeddings" in recipe("corpus", "train", **settings)
    (folder / "dict.en.txt").write_text("other 1\n")
    assert "--share-decoder-input-output-embed" in recipe("corpus", "train", **settings)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is no card of a dataset"),
        ("[]", "is no card of a dataset"),
        ("", "is no card of a dataset"),
        ("\udcff", "is no card of a dataset"),
        ('{"source_lang": "de", "target', "is no card of a dataset"),
        ('{"source_lang": "de", "target_lang": "en", "key": "k", "words": 1}', "is no card of a dataset"),
        ('{"key": "k"}', "does not say both languages"),
        ('{"source_lang": "d e", "target_lang": 1, "key": "k"}', "target_lang is 1, no str"),
        (None, "is a directory. Give a file in it."),
    ],
)
def test_bad_card_is_one_sentence(tmp_path, text, sentence):
    path = card(tmp_path / "data") / "dataset.json"
    path.unlink()
    path.mkdir() if text is None else path.write_text(text, errors="surrogateescape")
    output = recipe("corpus", "train", code=2, DATA=str(tmp_path / "data"), CPUS="1")
    assert sentence in output
    assert "Traceback" not in output


def test_of_two_first_recipes_one_makes_the_environment(tmp_path):
    venv = tmp_path / ".venv"
    for path in (tmp_path / "setup.py", tmp_path / "recipes/lib/environment.sh", venv / "posnet-begun"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    stubs = "posnet_is_whole() { :; }; posnet_suits() { :; }; posnet_install() { sleep 0.5; echo installed; }"
    script = f'. recipes/lib/environment.sh; {stubs}; posnet_environment "$1"; ls "$1"/.venv/posnet-* >/dev/null'
    both = [
        subprocess.Popen(["bash", "-euc", script, "", tmp_path], cwd=commands.ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert sorted(process.communicate()[0] for process in both) == ["", "installed\n"]
    assert [process.returncode for process in both] == [0, 0]
