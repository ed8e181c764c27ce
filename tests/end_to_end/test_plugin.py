"""docs/mixers-anywhere.md: mixers in a model of one's own, and a mixer of one's own in a folder of one's own."""

import importlib
import subprocess
import sys

import pytest
import torch

from posnet_fairseq import registry
from posnet_fairseq.testing import check_mixer
from support import commands, documents
from support.commands import ROOT

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
