"""Every mistake ends in one sentence and exit code 2, in posnet's commands and in fairseq's."""

import os
import pickle
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace

import numpy
import pytest
import torch

from posnet_fairseq.cli import average, translate
from posnet_fairseq.inference.checkpoints import read_checkpoint
from posnet_fairseq.inference.translator import BLANK, Translator
from posnet_fairseq.shared.errors import UsageError
from support import commands
from support.checkpoints import checkpoint
from support.commands import fails


class Malicious:
    def __reduce__(self):
        return os.system, ("touch malicious-code-ran",)


def test_translate_missing_checkpoint(capsys, tmp_path):
    assert "there is no such checkpoint" in fails(capsys, translate.main, tmp_path / "none.pt")


def test_translate_truncated_checkpoint(capsys, tmp_path):
    path = checkpoint(tmp_path / "model.pt")
    for size in (0, 100, path.stat().st_size // 2, path.stat().st_size - 10):
        (tmp_path / "cut.pt").write_bytes(path.read_bytes()[:size])
        assert "damaged or no checkpoint" in fails(capsys, translate.main, tmp_path / "cut.pt"), size


def test_translate_malicious_checkpoint(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"cfg": Malicious()}, tmp_path / "bad.pt")
    assert "was refused" in fails(capsys, translate.main, tmp_path / "bad.pt")
    (tmp_path / "raw.pt").write_bytes(pickle.dumps({"cfg": Malicious()}))
    fails(capsys, translate.main, tmp_path / "raw.pt")
    assert not (tmp_path / "malicious-code-ran").exists()


def test_code_in_the_options_of_a_checkpoint_is_not_run(capsys, tmp_path, monkeypatch):
    """fairseq's own loader evaluates these strings."""
    monkeypatch.chdir(tmp_path)
    code = "__import__('os').system('touch malicious-code-ran')"
    path = checkpoint(tmp_path / "model.pt")
    (tmp_path / "text").write_text("w1\n")
    good = torch.load(path, weights_only=True)
    legacy = good | {"args": Namespace(arch="transformer", task="translation", adaptive_softmax_cutoff=code)}
    task = good | {"cfg": good["cfg"] | {"task": good["cfg"]["task"] | {"left_pad_source": code}}}
    model = good | {"cfg": good["cfg"] | {"model": good["cfg"]["model"] | {"encoder_xformers_att_config": code}}}
    for state in (legacy, task, model):
        torch.save(state, path)
        translate.main([str(path), "--pretokenized", "--beam", "1", "--max-len-b", "2", "--input", "text"])
    assert not (tmp_path / "malicious-code-ran").exists()
    capsys.readouterr()
    nested = good | {"cfg": good["cfg"] | {"model": good["cfg"]["model"] | {"dropout": [code]}}}
    torch.save(nested, path)
    assert "option dropout is a list, not a plain value" in fails(capsys, translate.main, path)


def test_types_that_fairseq_stores_are_read_without_its_plugin(tmp_path):
    path = checkpoint(tmp_path / "model.pt")
    state = torch.load(path, weights_only=True)
    stored = {"best": numpy.float64(1.5), "table": numpy.arange(3), "options": Namespace(lr=1)}
    torch.save(state | {"extra_state": stored}, path)
    code = "import sys; from posnet_fairseq.inference.checkpoints import load_content; "
    code += "print(load_content(sys.argv[1])['extra_state'], 'posnet_fairseq.models' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout == f"{stored} False\n"


def test_incomplete_checkpoint(capsys, tmp_path):
    path = checkpoint(tmp_path / "model.pt")
    state = torch.load(path, weights_only=True)
    for missing in ("model", "optimizer_history"):
        torch.save({name: value for name, value in state.items() if name != missing}, path)
        assert f"lacks {missing}" in fails(capsys, translate.main, path)


def test_foreign_model(tmp_path):
    torch.save({"cfg": {"model": {"_name": "lstm"}}}, tmp_path / "lstm.pt")
    with pytest.raises(UsageError, match="holds the model lstm"):
        read_checkpoint(tmp_path / "lstm.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(UsageError, match="no fairseq model"):
        read_checkpoint(tmp_path / "list.pt")


def test_translate_without_dictionaries_or_card(capsys, tmp_path):
    path = checkpoint(tmp_path / "model.pt")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "has no dict.xx.txt" in fails(capsys, translate.main, path, "--data", empty)
    assert "has no dataset.json" in fails(capsys, translate.main, path)
    (tmp_path / "dataset.json").write_text("{")
    assert "is no card" in fails(capsys, translate.main, path)


def test_translate_wrong_dictionary(capsys, tmp_path):
    path = checkpoint(tmp_path / "model.pt")
    other = tmp_path / "other"
    other.mkdir()
    checkpoint(other / "model.pt", words=50)
    assert "trained with 40" in fails(capsys, translate.main, path, "--data", other, "--pretokenized")


def test_translate_bad_text(capsys, tmp_path):
    path = checkpoint(tmp_path / "model.pt")
    (tmp_path / "text").write_bytes(b"w1\n\xff\n")
    arguments = [path, "--pretokenized", "--input", tmp_path / "text"]
    assert "line 2 has an invalid byte" in fails(capsys, translate.main, *arguments)
    (tmp_path / "text").write_text("w1\n" + "w2 " * 24 + "\n")
    assert "line 2 has 25 tokens (its end symbol counted), the model takes 24" in fails(
        capsys, translate.main, *arguments
    )
    assert "--beam 0: give 1 or more" in fails(capsys, translate.main, *arguments, "--beam", 0)
    assert "--max-len-a -1.0: give 0 or more" in fails(capsys, translate.main, *arguments, "--max-len-a", -1)
    assert "the folder no/such is not there" in fails(capsys, translate.main, *arguments, "--output", "no/such/file")


@pytest.mark.parametrize(("on_long", "third"), [("truncate", "24 tokens"), ("skip", "")])
def test_translate_long_and_empty_lines(capsys, monkeypatch, tmp_path, on_long, third):
    path = checkpoint(tmp_path / "model.pt")
    monkeypatch.setattr(
        Translator, "translate", lambda _, batch: [[replace(BLANK, text=f"{len(s)} tokens")] for s in batch.sources]
    )
    (tmp_path / "text").write_text("w1 w2\n\n" + "w3 " * 30 + "\n \nw4\n")
    translate.main([str(path), "--pretokenized", "--on-long", on_long, "--input", f"{tmp_path}/text"])
    captured = capsys.readouterr()
    assert captured.out.split("\n") == ["3 tokens", "", third, "", "2 tokens", ""]
    assert "line 3 has 31 tokens" in captured.err


def test_average_refuses_what_does_not_belong_together(capsys, tmp_path):
    arguments = [tmp_path, "--num", "2", "--out", tmp_path / "out.pt"]
    assert "holds no numbered checkpoints" in fails(capsys, average.main, *arguments)
    checkpoint(tmp_path / "checkpoint_1_10.pt", updates=10)
    assert "there are only 1 checkpoints" in fails(capsys, average.main, *arguments)
    checkpoint(tmp_path / "checkpoint_1_20.pt", updates=20, encoder_ffn_embed_dim=48)
    assert "differ in the option encoder_ffn_embed_dim" in fails(capsys, average.main, *arguments)
    checkpoint(tmp_path / "checkpoint_1_20.pt", "rposnet", updates=20)
    assert "is a rposnet_tiny and" in fails(capsys, average.main, *arguments)
    assert "there is no such directory" in fails(capsys, average.main, tmp_path / "no", "--num", 1, "--out", "x")
    assert not (tmp_path / "out.pt").exists()


def train(data, *more, arch="rposnet_tiny"):
    return ["train", *commands.train_arguments(data, data.parent / "run", "--max-update", "1", *more, arch=arch)]


@pytest.mark.thorough  # 13 s: fairseq-train in its own process, again and again
def test_fairseq_bad_options(tmp_path):
    assert "--encoder-self-mixer rposnt: there is no such mixer" in commands.fairseq_fails(
        *train(tmp_path, "--encoder-self-mixer", "rposnt")
    )
    assert "--clip-distance 0: give 1 or more" in commands.fairseq_fails(*train(tmp_path, "--clip-distance", "0"))
    assert "--decoder-self-mixer fouriernet: this mixer cannot stand there" in commands.fairseq_fails(
        *train(tmp_path, "--decoder-self-mixer", "fouriernet")
    )
    assert "--irpe-undirected True: none of the chosen mixers (attention, rposnet)" in commands.fairseq_fails(
        *train(tmp_path, "--irpe-undirected")
    )


@pytest.mark.thorough  # 7 s: fairseq-train in its own process, again and again
def test_fairseq_missing_data(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "nothing: No such file or directory" in commands.fairseq_fails(*train(tmp_path / "nothing"))
    assert "there is no binarized data" in commands.fairseq_fails(*train(empty))


@pytest.mark.thorough  # 11 s
def test_fairseq_bad_checkpoints(tmp_path):
    path = checkpoint(tmp_path / "model.pt")
    generate = ["generate", tmp_path, "-s", "xx", "-t", "yy", "--cpu", "--path"]
    (tmp_path / "cut.pt").write_bytes(path.read_bytes()[:1000])
    assert "cut.pt is damaged or no checkpoint" in commands.fairseq_fails(*generate, tmp_path / "cut.pt")
    torch.save({"cfg": Malicious()}, tmp_path / "bad.pt")
    assert "bad.pt was refused: it holds objects that could run code" in commands.fairseq_fails(
        *generate, tmp_path / "bad.pt"
    )
    assert not os.path.exists(commands.ROOT / "malicious-code-ran")
    assert "none.pt: there is no such checkpoint" in commands.fairseq_fails(*generate, tmp_path / "none.pt")
