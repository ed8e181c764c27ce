"""docs/mixers-anywhere.md: mixers in a model of one's own, and a mixer of one's own in a folder of one's own."""

import importlib
import os
import subprocess
import sys

import pytest
import torch

from posnet_fairseq import registry
from posnet_fairseq.testing import check_mixer
from support import commands, documents
from support.checkpoints import checkpoint, fairseqs_model
from support.commands import ROOT
from support.corpus import prepared

OWN_MODEL, STEPS, LAYER, MASKS, TRAINED, PLUGIN, _ = documents.python("docs/mixers-anywhere.md")


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
    exec(compile(LAYER, "layer.py", "exec"), names)
    assert names["y"].shape == (2, 10, 64)
    exec(compile(MASKS, "masks.py", "exec"), names)
    one = names["build_mixer"]("shaw", embed_dim=64, num_heads=4, max_positions=256).eval()
    x = torch.randn(1, 7, 64)
    torch.testing.assert_close(one(x, attn_mask=names["packed"])[:, :3], one(x[:, :3]))
    other = torch.cat([x[:, :5], torch.randn(1, 2, 64)], dim=1)
    seen = names["prefix_of_3"]
    torch.testing.assert_close(one(x, attn_mask=seen)[:, :5], one(other, attn_mask=seen)[:, :5])


def test_a_trained_mixer(tmp_path, monkeypatch):
    wide = {f"{side}_embed_dim": 64 for side in ("encoder", "decoder")}
    heads = {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}
    path = checkpoint(tmp_path / "averaged.pt", "rposnet", **wide, **heads, max_source_positions=256, clip_distance=16)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(TRAINED, "trained.py", "exec"), names)
    encoder, x = fairseqs_model(torch.load(path, weights_only=True)).encoder, torch.randn(2, 7, 64)
    expected = encoder.layers[0].self_attn(x, positions=encoder.positions.for_mixers(7))
    torch.testing.assert_close(names["mixer"].eval()(x), expected, rtol=0, atol=0)


@pytest.fixture
def plugin(tmp_path):
    (tmp_path / "my_plugin").mkdir()
    (tmp_path / "my_plugin" / "__init__.py").write_text(PLUGIN)
    return tmp_path / "my_plugin"


SMALL = (
    "--size tiny --updates 4 --interval 2 --average 2 --warmup 2 --tokens 400 --max-tokens 200 --max-positions 32 "
    "--beam 2 --max-len-a 0 --max-len-b 8 --cpus 1 --metrics bleu"
).split()


@pytest.mark.slow
def test_posnet_run_trains_and_compares_it(plugin, tmp_path):
    """From the training to a report of two; then posnet's commands, one by one."""
    data = prepared(tmp_path, tmp_path / "data", train=140)

    def posnet(*arguments, code=0):
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    own = ("--user-dir", "my_plugin")
    where = ("--data", data, "--runs", "runs", *SMALL, f"--options={commands.NARROW} --dropout 0", *own)
    output = posnet("posnet-run", "compare", "--mixers", "window,decay", *where)
    gates = [line.split()[:2] for line in output.splitlines() if line.startswith(("window ", "decay "))]
    assert gates == [["window", "none"], ["decay", "gelu"]]
    said = posnet("posnet-run", "corpus", "--mixer", "window", *where)
    assert "window_tiny_s1: train is done" in said
    assert "\nwindow  " in said
    assert "report: runs/data/window_tiny_s1/report/report.html has the signatures (also .md" in said

    trained = tmp_path / "runs/data/decay_tiny_s1/averaged.pt"
    posnet("posnet-precompute", trained, "--out", "stored.pt", *own)
    words = ("--input", f"{data}/test.xx", "--cpu")

    def translated(model, *arguments):
        out = tmp_path / "out.yy"
        out.unlink(missing_ok=True)
        assert "61 sentences" in posnet("posnet-translate", model, *words, "--output", out, *arguments, *own)
        return out.read_text()

    expected = translated(trained, "--data", data)
    assert translated(trained, "--data", data, "--processes", "2") == expected
    assert translated("stored.pt", "--data", data) == expected
    posnet("posnet-export", trained, "--data", data, "--out", "folder", *own)
    readme = (tmp_path / "folder/README.md").read_text()
    assert "posnet-translate folder --input text.xx --output text.yy --user-dir my_plugin\n" in readme
    assert "\nimport my_plugin\nimport posnet_fairseq as posnet\n" in readme
    assert translated("folder") == expected
    assert translated("folder", "--dtype", "int8") == translated(trained, "--data", data, "--dtype", "int8")
    assert "DEBUG" not in posnet("posnet-plot", "weights", "folder", "--out", "figures", *own)
    assert (tmp_path / "figures/weights.html").exists()
    assert "decay" in posnet("posnet-mixers", *own)
    for model in (trained, "folder"):
        refused = posnet("posnet-translate", model, *words, "--output", "no.yy", code=2)
        assert f"{model} is the model decay_tiny of the plugin my_plugin. Give its folder, --user-dir " in refused
    tuned = ("--lrs", "1e-3", "--dropouts", "0", "--clip-distances", "8")
    posnet("posnet-run", "tune", "--mixers", "window", *where, *tuned, f"--options={commands.NARROW}")
    found = (tmp_path / "runs/data/tune_window_tiny_s1/tuned.txt").read_text()
    assert found == "window window --lr 1e-3 --dropout 0 --clip-distance 8\n"


def test_an_installed_plugin_needs_no_option(plugin, tmp_path):
    """Its entry point names the module that registers mixers; a broken one is named."""
    module = plugin / "mixers.py"
    module.write_text(PLUGIN.replace("import posnet_fairseq.models", ""))
    (plugin / "__init__.py").write_text("")
    about = tmp_path / "my_plugin-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[posnet.plugins]\nmine = my_plugin.mixers\n")
    argv = [sys.executable, "-m", "posnet_fairseq", "mixers", "decay"]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "ALiBi without queries and keys" in done.stdout
    module.write_text("import nothing_such")
    argv[-1] = "rposnet"  # which works without it
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (
        "The installed plugin mine of posnet cannot be imported, so its mixers are missing: my_plugin.mixers: "
        "ModuleNotFoundError: No module named 'nothing_such'. Repair or uninstall its package.\n"
    ) in done.stderr


def test_the_laws_hold_for_it_and_find_what_breaks_them(plugin, monkeypatch):
    monkeypatch.setattr(registry, "_MIXERS", dict(registry._MIXERS))
    monkeypatch.syspath_prepend(plugin.parent)
    monkeypatch.delitem(sys.modules, "my_plugin", raising=False)
    importlib.import_module("my_plugin")
    for name in "window", "decay":
        check_mixer(name)
    monkeypatch.setattr(registry.get_mixer("window"), "causal", False)
    said = r"(?s)window, decoder, gate none: steps_equal_the_full_pass: .*\nAlso when hypotheses change places"
    with pytest.raises(AssertionError, match=said):
        check_mixer("window")


@pytest.mark.parametrize("name", ["rposnet", "gaussiannet", "shaw", "fouriernet", "translution"])
@pytest.mark.quick_cases(1)
def test_the_laws_hold_for_mixers_of_each_kind(name):
    check_mixer(name)
