"""What a command does not do while it starts."""

import json
import os
from importlib.metadata import entry_points

import pytest
import torch
from torch import nn

import posnet_fairseq as posnet
from posnet_fairseq.cli import export
from posnet_fairseq.inference.checkpoints import read_checkpoint
from posnet_fairseq.inference.model_loading import build_model
from support.checkpoints import checkpoint
from support.commands import COMMANDS, modules_of, python


def run(program, *arguments):
    """The last line that a program of Python prints, as JSON."""
    ran = python(program, *arguments, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


# What no command imports to print its help, its version, or that an option is wrong.
SLOW = {"torch", "fairseq", "matplotlib", "scipy", "pandas", "sklearn", "sympy", "sacrebleu", "jinja2"}


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_read_before_anything_slow_is_imported(name):
    (script,) = entry_points(group="console_scripts", name=name)
    program = (
        "import importlib, sys\n"
        "module, function = sys.argv[1:]\n"
        "for argument in ('--help', '--version', '--no-such-option'):\n"
        "    try: getattr(importlib.import_module(module), function)([argument])\n"
        "    except SystemExit: print()\n"
    )
    imported = modules_of(program, script.module, script.attr)
    assert "posnet_fairseq.shared.command" in imported
    assert not SLOW & {module.partition(".")[0] for module in imported}


@pytest.mark.thorough  # 4 s
def test_fairseq_is_imported_without_what_posnet_never_uses():
    imported, found, scores = run(
        "import json, sys\n"
        "import posnet_fairseq.models\n"
        "imported = sorted({module.partition('.')[0] for module in sys.modules})\n"
        "from importlib.util import find_spec\n"
        "from fairseq.criterions.sentence_prediction import pearsonr\n"
        "from fairseq.tasks.audio_classification import sklearn_metrics\n"
        "scores = [float(sklearn_metrics.f1_score([0, 1, 1], [0, 1, 0])), float(pearsonr([1, 2, 3], [1, 2, 3])[0])]\n"
        "print(json.dumps([imported, [find_spec(name).origin for name in ('sklearn', 'scipy')], scores]))\n"
    )
    assert "fairseq" in imported
    assert not {"sklearn", "scipy", "pandas", "matplotlib"} & set(imported)
    assert all(found)  # the packages themselves, when they are wanted
    assert scores == pytest.approx([2 / 3, 1])


def test_fairseq_that_does_not_import_is_explained(tmp_path):
    (tmp_path / "fairseq" / "dataclass").mkdir(parents=True)
    (tmp_path / "fairseq" / "__init__.py").write_text("import fairseq.dataclass\n")
    (tmp_path / "fairseq" / "dataclass" / "__init__.py").write_text("raise ValueError('mutable default')\n")
    program = "import posnet_fairseq.models"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    ran = python(program, env=environment)
    assert "ImportError: fairseq does not import on Python" in ran.stderr
    assert "(ValueError: mutable default)" in ran.stderr


def test_a_command_searches_for_no_garbage_while_it_imports():
    searched = run(
        "import gc, json, sys\n"
        "searched = []\n"
        "from posnet_fairseq.cli import translate\n"
        "gc.callbacks.append(lambda phase, info: searched.append(phase))\n"
        "sys.argv = ['posnet-translate', '/nonexistent']\n"
        "try: translate.main()\n"
        "except SystemExit: print()\n"
        "print(json.dumps(len(searched)))\n"
    )
    assert searched <= 8, "each of two phases"


def test_a_command_called_from_python_leaves_the_search_as_it_is():
    before, after = run(
        "import gc, json\n"
        "state = lambda: [gc.get_threshold(), gc.get_freeze_count()]  # Python 3.12 begins with frozen objects\n"
        "found = [state()]\n"
        "from posnet_fairseq.cli import translate\n"
        "try: translate.main(['--no-such-option'])\n"
        "except SystemExit: found.append(state())\n"
        "print(json.dumps(found))\n"
    )
    assert before == after


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


@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("dtype", ["float32", "bf16", "int8"])
def test_a_file_that_changes_does_not_change_the_model(tmp_path, monkeypatch, dtype, is_packed):
    monkeypatch.setattr("torch.backends.mkldnn.is_available", lambda: is_packed)
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
