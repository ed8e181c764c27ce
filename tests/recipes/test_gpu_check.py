"""recipes/gpu_check.sh: its report, and what is bad input on a GPU."""

import json
import subprocess

import pytest
import torch

from posnet_fairseq.bench.gpu_check import report, running
from posnet_fairseq.bench.gpu_check.losses import losses
from posnet_fairseq.bench.gpu_check.sections import NO_GPU, Section, sections
from posnet_fairseq.inference.precision import check_dtype
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain
from support.commands import ROOT


def check(*arguments):
    command = ["bash", ROOT / "recipes/gpu_check.sh", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_simulated_check(tmp_path):
    done = check("--simulated", "--out", str(tmp_path))
    written = (tmp_path / "report.md").read_text()
    assert done.returncode == 0, written
    assert "no figure here is of a GPU" in written
    found = json.loads((tmp_path / "results.json").read_text())["sections"]
    skipped = {name for name, result in found.items() if result["state"] == "skipped"}
    assert skipped == {"fp16", "bf16", "ddp", "memory"}
    assert all(found[name]["reason"] == NO_GPU for name in skipped)
    assert all(result["state"] == "passed" for name, result in found.items() if name not in skipped)
    assert "training step: cudaStreamSynchronize 0" in written
    again = check("--simulated", "--out", str(tmp_path))
    assert again.returncode == 0
    assert json.loads((tmp_path / "results.json").read_text())["sections"]["laws"] == found["laws"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu():
    done = check()
    assert done.returncode == 2
    assert done.stderr.strip().endswith("or test the check itself with --simulated.")


def test_a_section_that_fails_is_reported(tmp_path):
    section = Section("one", "One", 30, ("echo said; exit 3", "echo unreached"))
    result = running.run_section(section)
    assert (result["state"], result["reason"]) == ("failed", "`echo said; exit 3` ended with code 3")
    report.write_report(tmp_path, {"one": result}, simulated=False)
    written = (tmp_path / "report.md").read_text()
    assert "said" in written
    assert "unreached" not in written
    assert report.read_results(tmp_path, simulated=False) == {"one": result}
    assert report.read_results(tmp_path, simulated=True) == {}


def test_a_section_that_takes_too_long_is_stopped():
    result = running.run_section(Section("one", "One", 1, ("echo said; sleep 600",)))
    assert result["state"] == "failed"
    assert "was stopped" in result["reason"]
    assert result["commands"][0]["output"] == "said\n"


def test_limits_are_twenty_minutes(tmp_path):
    assert sum(section.limit for section in sections(tmp_path, simulated=False)) <= 20 * 60


def test_damaged_results(tmp_path):
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(UsageError, match="--again"):
        report.read_results(tmp_path, simulated=False)


def test_losses_of_a_log():
    log = '2026 | INFO | train_inner | {"epoch": 1, "loss": "5.5"}\nother\n{"train_loss": "5"}\nx {"loss": "4.5"}\n'
    assert losses(log) == [5.5, 4.5]


def test_bf16_on_an_old_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "V100")
    with pytest.raises(UsageError, match=r"--dtype bf16: V100 .* Choose fp16 or float32"):
        check_dtype("bf16", "cuda")
    check_dtype("fp16", "cuda")


def test_too_little_memory_of_a_gpu():
    assert "--max-tokens" in explain(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
