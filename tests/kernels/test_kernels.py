"""The kernels without a GPU: in Triton's interpreter, and compiled.

Both need settings that Triton reads when it is imported, so each is a pytest of its own, of a file beside this one.
"""

import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from posnet_fairseq.cli import doctor
from posnet_fairseq.ops import kernels
from posnet_fairseq.shared.errors import UsageError
from support.commands import ROOT

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed: pip install -e '.[kernels]'"
)


def run(file, chosen, tmp_path, **environment):
    """Run the chosen tests of a file in a process of their own."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "--noconftest", "-q", "-rs", "-m", "", "-k", chosen]
    command.append(str(Path(__file__).with_name(file)))
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path), **environment}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "skipped" not in ran.stdout, ran.stdout


@needs_triton
@pytest.mark.parametrize("chosen", ["operators or program", "not (operators or program)"])
@pytest.mark.quick_cases(1)
def test_results_in_the_interpreter(chosen, tmp_path):
    run("interpreted_attention.py", chosen, tmp_path, TRITON_INTERPRET="1")


@needs_triton
@pytest.mark.thorough  # 60 s of CPU time: compiles every program
def test_they_compile_for_gpus(tmp_path):
    run("compiled.py", "", tmp_path, TRITON_INTERPRET="0")


@pytest.fixture
def gpu(monkeypatch):
    """A machine whose torch tells of a GPU, and has triton."""
    monkeypatch.delenv(kernels.SWITCH, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "A100")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    kernels._obstacle_told.cache_clear()
    yield monkeypatch
    kernels._obstacle_told.cache_clear()


OLD = {"torch.cuda.get_device_capability": lambda _=None: (7, 0), "torch.cuda.get_device_name": lambda _=None: "V100"}
ABSENT = {"torch.cuda.is_available": lambda: False, "torch.cuda.device_count": lambda: 0}


@pytest.mark.parametrize(
    ("changes", "says", "fix"),
    [
        (OLD, "V100 has compute capability 7.0, they need 8.0", "use a newer GPU"),
        ({"importlib.util.find_spec": lambda name: None}, "triton is not installed", "pip install triton"),
        ({"torch.version.hip": "6.4"}, "only NVIDIA GPUs have them", ""),
        ({}, "turned off by POSNET_KERNELS=off", ""),
        (ABSENT, "only GPUs have them", ""),
    ],
)
def test_why_kernels_are_not_used(gpu, changes, says, fix):
    """The doctor says so; who could change it is told once."""
    for name, value in changes.items():
        gpu.setattr(name, value)
    if not changes:
        gpu.setenv(kernels.SWITCH, "off")
    finding = doctor._kernels()
    assert (finding.works, finding.needed, finding.fix) == (False, False, fix)
    assert says in finding.says
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert not kernels._are_used_on(0)
        assert not kernels._are_used_on(0)
    assert [says in str(warning.message) and fix in str(warning.message) for warning in told] == [True] * bool(fix)


def test_kernels_are_used_on_a_gpu(gpu):
    assert kernels._are_used_on(0)
    finding = doctor._kernels()
    assert finding.works
    assert "used: attention of shaw" in finding.says


def test_kernels_are_not_used_on_cpus(gpu):
    assert not kernels.are_used(torch.zeros(1))


def test_unknown_switch(gpu):
    gpu.setenv(kernels.SWITCH, "maybe")
    sentence = "POSNET_KERNELS=maybe: give on, the default, or off, for torch's operations instead of kernels."
    with pytest.raises(UsageError) as error:
        kernels._are_used_on(0)
    assert str(error.value) == sentence
    assert sentence in [finding.says for finding in doctor.examine()]
