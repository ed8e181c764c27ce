"""What a command does not do while it starts."""

import gc
import json
import subprocess
import sys

import pytest
import torch
from torch import nn

import posnet_fairseq as posnet
from posnet_fairseq.cli import export
from posnet_fairseq.inference.checkpoints import read_checkpoint
from posnet_fairseq.inference.models import build_model
from posnet_fairseq.inference.packing import pack as packing
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.garbage import search_paused
from support.checkpoints import checkpoint


def run(program, *arguments):
    """The last line that a program of Python prints, as JSON."""
    ran = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def test_importing_a_command_searches_for_no_garbage():
    searched, is_usual, frozen = run(
        "import gc, json\n"
        "usual, searched = gc.get_threshold(), []\n"
        "import posnet_fairseq.cli\n"
        "gc.callbacks.append(lambda phase, info: searched.append(info))\n"
        "import posnet_fairseq.cli.translate\n"
        "imported = len(searched)\n"
        "from posnet_fairseq.shared.command import command\n"
        "@command\n"
        "def main(arguments=None):\n"
        "    print(json.dumps([imported, gc.get_threshold() == usual, gc.get_freeze_count()]))\n"
        "main()\n"
    )
    assert (searched, is_usual) == (0, True)
    assert frozen > 100_000  # objects of torch


def test_a_command_that_python_imports_leaves_the_search_as_it_is():
    usual, imported, called = run(
        "import gc, json\n"
        "found = [gc.get_threshold()]\n"
        "from posnet_fairseq.cli import translate\n"
        "found.append(gc.get_threshold())\n"
        "try: translate.main(['--no-such-option'])\n"
        "except SystemExit: found.append(gc.get_threshold())\n"
        "print(json.dumps(found))\n"
    )
    assert usual == imported == called


def test_a_public_name_is_looked_up_once(monkeypatch):
    assert callable(posnet.build_mixer)
    monkeypatch.setattr(posnet, "search_paused", None)
    assert callable(posnet.build_mixer)


def test_a_command_called_from_python_leaves_its_garbage_alone():
    gc.unfreeze()  # what other tests have frozen

    @command
    def main(arguments=None):
        assert not gc.get_freeze_count()

    main([])
    assert not gc.get_freeze_count()


def test_torch_is_imported_without_a_search():
    searched, enabled, frozen = run(
        "import gc, json\n"
        "import posnet_fairseq as posnet\n"
        "searched = []\n"
        "gc.callbacks.append(lambda phase, info: searched.append(info))\n"
        "posnet.load\n"
        "count = len(searched)\n"
        "print(json.dumps([count, gc.isenabled(), gc.get_freeze_count()]))\n"
    )
    assert (searched, enabled, frozen) == (0, True, 0)


def test_what_a_user_has_chosen_stays():
    gc.disable()
    try:
        with search_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    gc.freeze()
    try:
        with search_paused():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()
    assert callable(posnet.load)


@pytest.mark.parametrize("shared", [True, False])
def test_weights_become_parameters_without_a_copy(tmp_path, shared):
    state = read_checkpoint(checkpoint(tmp_path / "model.pt", "rposnet", share_all_embeddings=shared))
    model = build_model(state)
    assert {name: tensor.data_ptr() for name, tensor in model.named_parameters()}.items() <= {
        name: tensor.data_ptr() for name, tensor in state["model"].items()
    }.items()
    assert all(isinstance(tensor, nn.Parameter) and tensor.requires_grad for tensor in model.parameters())
    words = [model.encoder.embed_tokens.weight, model.decoder.embed_tokens.weight]
    assert (words[0] is words[1]) == shared
    state["model"] = {
        name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in state["model"].items()
    }
    assert {tensor.dtype for tensor in build_model(state).parameters()} == {torch.float32}


@pytest.mark.parametrize("speedup", [0.5, 2.0], ids=["plain", "packed"])
@pytest.mark.parametrize("dtype", ["float32", "bf16", "int8"])
def test_a_file_that_changes_does_not_change_the_model(tmp_path, monkeypatch, dtype, speedup):
    monkeypatch.setattr(packing, "packing_speedup", lambda: speedup)
    path, folder = checkpoint(tmp_path / "averaged.pt", "rposnet"), tmp_path / "model"
    state = torch.load(path, weights_only=False)
    for name, tensor in state["model"].items():
        if name.endswith("bias"):  # which are zeros before a training
            tensor.normal_()
    torch.save(state, path)
    export.main([str(path), "--out", str(folder), "--pretokenized"])
    model = posnet.load(folder, dtype=dtype, pretokenized=True)
    before = model.translate("w1 w2 w3", beam=2, max_len_b=5, nbest=1)
    with open(folder / "model.safetensors", "r+b") as file:
        file.write(bytes((folder / "model.safetensors").stat().st_size))
    assert model.translate("w1 w2 w3", beam=2, max_len_b=5, nbest=1) == before
