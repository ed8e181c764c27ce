"""docs/mixers-anywhere.md: mixers in a model of one's own, and a mixer of one's own in a folder of one's own."""

import importlib
import os
import subprocess
import sys

import pytest
import torch

from posnet_data_prep.dataset import SETS
from posnet_data_prep.prepare import main as prepare
from posnet_fairseq import registry
from posnet_fairseq.testing import check_mixer
from support import commands, documents
from support.commands import ROOT
from support.corpus import make_corpus

PAGE = (ROOT / "docs" / "mixers-anywhere.md").read_text()
OWN_MODEL, STEPS, PLUGIN, CHECK = [code for _, language, code in documents.blocks(PAGE) if language == "python"]


def test_a_block_of_ones_own():
    names = {}
    exec(compile(OWN_MODEL, "block.py", "exec"), names)
    encoder, x = names["encoder"].eval(), torch.randn(2, 5, 64)
    assert encoder(x).shape == x.shape
    block = names["encoder"][0]
    mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    torch.testing.assert_close(block(x, mask)[1, :3], block(x[1:, :3])[0])
    exec(compile(STEPS, "steps.py", "exec"), names)
    assert names["y"].shape == (2, 10, 64)
    assert names["state"].beam == 3


@pytest.fixture
def plugin(tmp_path):
    (tmp_path / "my_plugin").mkdir()
    (tmp_path / "my_plugin" / "__init__.py").write_text(PLUGIN)
    return tmp_path / "my_plugin"


@pytest.mark.thorough  # 15 s; quick: the laws hold for such mixers
def test_a_plugin_trains_and_translates_with_a_mixer_of_its_own(plugin, data, tmp_path):
    def run(command, *arguments):
        argv = [sys.executable, "-m", f"fairseq_cli.{command}", *map(str, arguments), "--user-dir", str(plugin)]
        done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    run("train", *commands.train_arguments(data, tmp_path / "run", "--max-update", 3, arch="cosine_tiny"))
    checkpoint = tmp_path / "run" / "checkpoint_last.pt"
    state = torch.load(checkpoint, weights_only=True)
    assert state["cfg"]["model"]["encoder_self_mixer"] == "cosine"
    output = run(
        "generate",
        data,
        "--path",
        checkpoint,
        "--cpu",
        "--beam",
        2,
        "--max-len-b",
        7,
        "--no-progress-bar",
        "--required-batch-size-multiple",
        1,
    )
    assert len([line for line in output.split("\n") if line.startswith("D-")]) == 61


SMALL = (
    "--size tiny --updates 4 --interval 2 --average 2 --warmup 2 --tokens 400 --max-tokens 200 --max-positions 32 "
    "--beam 2 --max-len-a 0 --max-len-b 8 --cpus 1 --metrics bleu"
).split()
NARROW = "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 32 --decoder-embed-dim 32 --dropout 0"


@pytest.mark.slow
def test_posnet_run_trains_and_compares_it(plugin, tmp_path):
    """From the training to a report beside a mixer of posnet; then posnet's commands, one by one."""
    data = tmp_path / "data"
    make_corpus(tmp_path, train=140)
    texts = [[f"--{name}", *(str(tmp_path / f"{name}.{language}") for language in ("xx", "yy"))] for name in SETS]
    prepare(["corpus", "--merges", "20", "--out", str(data), *(word for words in texts for word in words)])

    def posnet(*arguments, code=0):
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    own = ("--user-dir", "my_plugin")
    where = ("--data", data, "--runs", "runs", *SMALL, f"--options={NARROW}", *own)
    output = posnet("posnet-run", "compare", "--mixers", "transformer_pos,cosine", *where)
    assert [line.split()[1] for line in output.splitlines() if line.startswith("cosine ")] == ["none"]  # its gate
    run = tmp_path / "runs/data/cosine_tiny_s1"
    assert "cosine_tiny_s1: train is done" in posnet("posnet-run", "corpus", "--mixer", "cosine", *where)
    words = ("--data", data, "--input", f"{data}/test.xx", "--cpu")
    alone = posnet("posnet-translate", run / "averaged.pt", *words, "--output", "alone.yy", *own)
    both = posnet("posnet-translate", run / "averaged.pt", *words, "--output", "both.yy", "--processes", "2", *own)
    assert "61 sentences" in alone
    assert "61 sentences" in both
    assert (tmp_path / "alone.yy").read_text() == (tmp_path / "both.yy").read_text()
    posnet("posnet-export", run / "averaged.pt", "--data", data, "--out", "folder", *own)
    from_folder = ("--input", f"{data}/test.xx", "--output", "folder.yy", "--cpu")
    posnet("posnet-translate", "folder", *from_folder, *own)
    assert (tmp_path / "alone.yy").read_text() == (tmp_path / "folder.yy").read_text()
    refused = posnet("posnet-translate", run / "averaged.pt", *words, "--output", "no.yy", code=2)
    assert "cosine" in refused
    assert "cosine" in posnet("posnet-mixers", *own)
    tuned = ("--lrs", "1e-3", "--dropouts", "0", "--clip-distances", "8")
    narrow = NARROW.removesuffix(" --dropout 0")
    posnet("posnet-run", "tune", "--mixers", "cosine", *where, *tuned, f"--options={narrow}")
    assert (tmp_path / "runs/data/tune_cosine_tiny/tuned.txt").read_text() == "cosine cosine --lr 1e-3 --dropout 0\n"


def test_the_laws_hold_for_it_and_find_what_breaks_them(plugin, monkeypatch):
    monkeypatch.setattr(registry, "_MIXERS", dict(registry._MIXERS))
    monkeypatch.syspath_prepend(plugin.parent)
    monkeypatch.delitem(sys.modules, "my_plugin", raising=False)
    importlib.import_module("my_plugin")
    check_mixer("cosine")
    cosine = registry.get_mixer("cosine")
    monkeypatch.setattr(cosine, "causal", False)
    with pytest.raises(AssertionError, match="cosine, decoder, gate none: "):
        check_mixer("cosine")


@pytest.mark.parametrize("name", ["rposnet", "gaussiannet", "shaw", "fouriernet", "translution"])
@pytest.mark.quick_cases(1)
def test_the_laws_hold_for_mixers_of_each_kind(name):
    check_mixer(name)
