"""Every function is annotated: the settings of mypy in pyproject.toml."""

import subprocess
import sys
import tomllib

import pytest

from support.commands import ROOT


def check(path):
    """Exit code and text of mypy on a file."""
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "--cache-dir",
            path.parent / "cache",
        ]
        + [str(path)],
        cwd=path.parent,
        capture_output=True,
        text=True,
    )
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def double(x):\n    return 2 * x\n", "Function is missing a type annotation"),
        ("def double(x: int):\n    return 2 * x\n", "Function is missing a return type annotation"),
        ("class A:\n    def _double(self, x, y: int) -> int:\n        return 2 * y\n", "missing a type annotation for"),
        ("def double(x: int) -> str:\n    return 2 * x\n", "Incompatible return value"),
    ],
)
def test_mypy_refuses(source, error, tmp_path):
    (tmp_path / "module.py").write_text(source)
    code, text = check(tmp_path / "module.py")
    assert code == 1
    assert error in text


def test_mypy_accepts_what_is_annotated(tmp_path):
    (tmp_path / "module.py").write_text("def double(x: int) -> int:\n    return 2 * x\n")
    assert check(tmp_path / "module.py")[0] == 0


def test_mypy_reads_all_packages():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert settings["files"] == ["posnet_fairseq", "eval", "data_prep"]
