"""The tests of this folder on a simulated GPU, in a process of their own: the simulation changes torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.simulated_gpu import SIMULATED

HERE = Path(__file__).parent


def run_simulated(*arguments):
    """Run tests with the marker ``gpu``: all have to pass, none to be skipped."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "gpu", "-rs", str(HERE), *arguments]
    command += ["--ignore", str(HERE / "test_kernels_on_gpu.py")]  # no kernel runs on a simulated GPU
    environment = os.environ | {SIMULATED: "1"}
    done = subprocess.run(command, env=environment, cwd=HERE.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-9000:] + done.stderr[-1000:]
    assert "SKIPPED" not in done.stdout


LAWS = "training-rposnet-encoder-gelu or search-rposnet-decoder-gelu or search_in_bf16-rposnet-decoder-gelu"
QUICK = f"faults or one_by_one or {LAWS}"


def test_one_mixer_and_the_faults():
    run_simulated("-k", QUICK)


@pytest.mark.thorough  # 4 minutes; quick: one mixer, and the faults
def test_all_others():
    run_simulated("-k", f"not ({QUICK})")
