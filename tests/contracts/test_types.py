"""Types are as the annotations say: mypy, with the settings in pyproject.toml."""

import subprocess
import sys

import pytest

from support.commands import ROOT


@pytest.mark.slow  # 50 s
def test_mypy_finds_nothing():
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
