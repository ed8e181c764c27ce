"""Devices that are too old for bf16, or have too little memory: one sentence."""

import re
from types import SimpleNamespace

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from posnet_fairseq import api
from posnet_fairseq.cli import translate
from posnet_fairseq.fairseq_plugin.training_options import _problems_of_precision, check_training_options
from posnet_fairseq.inference.precision import resolve_dtype
from posnet_fairseq.runs import devices
from posnet_fairseq.runs.run_settings import RunSettings
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain
from support.checkpoints import checkpoint


@pytest.fixture
def old_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "NVIDIA GeForce RTX 2080 Ti")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    monkeypatch.setattr(devices, "gpus", lambda: (1, False))


@pytest.mark.usefixtures("old_gpu")
def test_bf16_is_refused_and_fp16_is_not():
    with pytest.raises(UsageError, match=r"--dtype bf16: NVIDIA GeForce RTX 2080 Ti .* Choose fp16 or float32"):
        resolve_dtype("bf16", "cuda")
    assert resolve_dtype("fp16", "cuda") == "fp16"
    assert resolve_dtype("bf16", "cpu") == "bf16"
    (problem,) = _problems_of_precision(SimpleNamespace(cpu=False, bf16=True, fp16=False, amp=False))
    assert re.fullmatch(r"--bf16: NVIDIA GeForce RTX 2080 Ti .* Give --fp16 instead", problem)
    assert not list(_problems_of_precision(SimpleNamespace(cpu=False, bf16=False, fp16=True, amp=True)))


@pytest.mark.usefixtures("old_gpu")
def test_recipes_refuse_bf16_and_choose_fp32():
    given = {"dataset": "quickstart.en-de", "size": "tiny"}
    with pytest.raises(UsageError, match=r"bf16.*Give fp16"):
        devices.find_device(RunSettings.parsed(given | {"precision": "bf16"}))
    assert devices.find_device(RunSettings.parsed(given | {"precision": "fp16"})).precision == "fp16"
    assert devices.find_device(RunSettings.parsed(given)).precision == "fp32"


def test_too_little_memory_is_one_sentence():
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")
    assert "--max-tokens" in explain(error)


@pytest.mark.parametrize(
    ("device", "supported", "chosen"),
    [("cpu", True, "float32"), ("cuda", True, "bf16"), ("cuda", False, "float32"), ("meta", True, "float32")],
)
def test_auto_is_bf16_on_gpus_that_have_it(monkeypatch, device, supported, chosen):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert resolve_dtype("auto", device) == chosen
    if device != "cpu":
        with pytest.raises(UsageError, match="int8: torch multiplies 8-bit numbers on CPUs only"):
            resolve_dtype("int8", device)


@pytest.mark.parametrize(
    ("cpu", "has_bf16", "is_said"), [(True, False, True), (True, True, False), (False, False, False)]
)
@pytest.mark.usefixtures("old_gpu")
def test_training_in_bf16_on_slow_processors_is_said(monkeypatch, caplog, cpu, has_bf16, is_said):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: has_bf16)
    argv = ["data", "--arch", "rposnet_tiny", "--bf16", *(["--cpu"] if cpu else [])]
    arguments = options.parse_args_and_arch(options.get_training_parser(), argv)
    check_training_options(convert_namespace_to_omegaconf(arguments))
    said = "--bf16: this processor does not multiply in bf16, and training takes many times as long as in float32"
    assert (said in caplog.messages) == is_said


def test_auto_is_said_and_used(tmp_path, capsys):
    path = checkpoint(tmp_path / "averaged.pt", "rposnet")
    (tmp_path / "lines").write_text("w1 w2\nw3\n")
    arguments = f"--pretokenized --cpu --input {tmp_path / 'lines'} --nbest 1 --max-len-b 5 --dtype".split()
    translate.main([str(path), *arguments, "auto"])
    automatic = capsys.readouterr()
    assert "posnet-translate: --dtype auto is float32\n" in automatic.err
    translate.main([str(path), *arguments, "float32"])
    assert capsys.readouterr().out == automatic.out
    model = api.load(path, pretokenized=True, dtype="auto", device="cpu")
    assert model.options.dtype == "float32"
