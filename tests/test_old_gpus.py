"""GPUs that are too old for bf16, or have too little memory: one sentence with the remedy."""

from types import SimpleNamespace

import pytest
import torch

from posnet_fairseq.fairseq_plugin.training_options import _check_precision
from posnet_fairseq.inference.precision import resolve_dtype
from posnet_fairseq.runs import devices
from posnet_fairseq.runs.run_settings import RunSettings
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain


@pytest.fixture
def old_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "NVIDIA GeForce RTX 2080 Ti")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    monkeypatch.setattr(devices, "gpus", lambda: (1, False))
    monkeypatch.setattr(devices, "gpu_memory", lambda count: 11 * 2**30)


@pytest.mark.usefixtures("old_gpu")
def test_bf16_is_refused_and_fp16_is_not():
    with pytest.raises(UsageError, match=r"--dtype bf16: NVIDIA GeForce RTX 2080 Ti .* Choose fp16 or float32"):
        resolve_dtype("bf16", "cuda")
    assert resolve_dtype("fp16", "cuda") == "fp16"
    assert resolve_dtype("bf16", "cpu") == "bf16"
    with pytest.raises(UsageError, match=r"--bf16: NVIDIA GeForce RTX 2080 Ti .* Give --fp16 instead"):
        _check_precision(SimpleNamespace(cpu=False, bf16=True, fp16=False))
    _check_precision(SimpleNamespace(cpu=False, bf16=False, fp16=True))


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
