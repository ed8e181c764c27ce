"""Every mistake ends in one sentence and exit code 2, in posnet's commands and in fairseq's."""

import os
import pickle
from argparse import Namespace
from dataclasses import replace

import numpy
import pytest
import torch

from posnet_fairseq.cli import translate
from posnet_fairseq.inference.checkpoints import read_checkpoint
from posnet_fairseq.inference.translation import BLANK
from posnet_fairseq.inference.translator import Translator
from posnet_fairseq.shared.errors import DamagedError, UsageError
from posnet_fairseq.shared.failures import explain
from support import commands
from support.checkpoints import checkpoint
from support.commands import fails


class Malicious:
    def __reduce__(self):
        return os.system, ("touch malicious-code-ran",)


def test_translate_truncated_checkpoint(capsys, tmp_path):
    path = checkpoint(tmp_path / "model.pt")
    for size in (0, 100, path.stat().st_size // 2, path.stat().st_size - 10):
        (tmp_path / "cut.pt").write_bytes(path.read_bytes()[:size])
        assert "damaged or no checkpoint" in fails(capsys, translate.main, tmp_path / "cut.pt"), size


def test_a_checkpoint_with_zeros_in_it_is_refused_and_one_without_checksums_is_read(tmp_path):
    path = checkpoint(tmp_path / "model.pt")
    whole, half = path.read_bytes(), path.stat().st_size // 2
    for start in range(0, len(whole) - 64, half // 4):
        path.write_bytes(whole[:start] + bytes(64) + whole[start + 64 :])
        with pytest.raises(DamagedError, match=r"model\.pt is damaged"):
            read_checkpoint(path)
    path.write_bytes(whole)
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(read_checkpoint(path), tmp_path / "without.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert read_checkpoint(tmp_path / "without.pt").keys() == read_checkpoint(path).keys()


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
    assert "option dropout is [" in fails(capsys, translate.main, path)


def test_types_that_fairseq_stores_are_read_without_its_plugin(tmp_path):
    path = checkpoint(tmp_path / "model.pt")
    state = torch.load(path, weights_only=True)
    stored = {"best": numpy.float64(1.5), "table": numpy.arange(3), "options": Namespace(lr=1)}
    torch.save(state | {"extra_state": stored}, path)
    code = "import sys; from posnet_fairseq.inference.checkpoints import load_content; "
    code += "print(load_content(sys.argv[1])['extra_state'], 'posnet_fairseq.models' in sys.modules)"
    done = commands.python(code, path, check=True)
    assert done.stdout == f"{stored} False\n"


def test_foreign_model(tmp_path):
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(UsageError, match="no model of posnet"):
        read_checkpoint(tmp_path / "list.pt")


def test_translate_bad_text(capsys, tmp_path):
    path = checkpoint(tmp_path / "model.pt")
    (tmp_path / "text").write_bytes(b"w1\n\xff\n")
    arguments = [path, "--pretokenized", "--input", tmp_path / "text"]
    assert "line 2 has an invalid byte" in fails(capsys, translate.main, *arguments)
    (tmp_path / "text").write_text("w1\n" + "w2 " * 24 + "\n")
    assert "line 2 has 25 tokens (its end symbol counted), the model takes 24" in fails(
        capsys, translate.main, *arguments
    )
    said = fails(capsys, translate.main, *arguments, "--output", "no/such/file")
    assert "cannot write in no/such: No such file or directory" in said


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


def test_fairseq_without_data(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    with pytest.raises(Exception, match="language pair") as error:
        commands.call(monkeypatch, "train", *commands.train_arguments(tmp_path / "empty", tmp_path / "run"))
    assert "there is no binarized data" in explain(error.value)


@pytest.mark.thorough  # 4 s
def test_fairseq_bad_checkpoints(tmp_path):
    checkpoint(tmp_path / "model.pt")
    torch.save({"cfg": Malicious()}, tmp_path / "bad.pt")
    said = commands.fairseq_fails("generate", tmp_path, "-s", "xx", "-t", "yy", "--cpu", "--path", tmp_path / "bad.pt")
    assert "bad.pt was refused: it holds objects that could run code" in said
    assert not os.path.exists(commands.ROOT / "malicious-code-ran")
