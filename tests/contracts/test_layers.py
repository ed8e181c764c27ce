"""What each room may import: the contracts in pyproject.toml."""

import os
import shutil

import pytest

from support.commands import ROOT, python

PACKAGES = {"posnet_fairseq": "posnet_fairseq", "eval": "posnet_eval", "data_prep": "posnet_data_prep"}


def lint(folder, *contracts):
    """Exit code and text of import-linter on the packages in a folder."""
    chosen = [argument for contract in contracts for argument in ("--contract", contract)]
    program = "from importlinter.cli import lint_imports_command as run; run()"
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "300"}
    options = ("--config", ROOT / "pyproject.toml", "--no-cache", *chosen)
    ran = python(program, *options, cwd=folder, env=environment)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.fixture
def copied(tmp_path):
    """A folder with the packages under their installed names."""
    for folder, package in PACKAGES.items():
        shutil.copytree(ROOT / folder, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_rooms_import_only_what_they_may(copied):
    code, text = lint(copied)
    assert code == 0, text


@pytest.mark.parametrize(
    ("contract", "file", "line", "found"),
    [
        ("layers", "posnet_fairseq/ops/heads.py", "import posnet_fairseq.mixers", "ops.heads -> posnet_fairseq.mixers"),
        ("layers", "posnet_fairseq/new_room.py", "", "new_room"),
        (
            "core-layers",
            "posnet_fairseq/registry.py",
            "import posnet_fairseq.mixers.bases.token_mixer",
            "registry -> posnet_fairseq.mixers.bases.token_mixer",
        ),
        ("acyclic", "posnet_fairseq/ops/offsets.py", "import posnet_fairseq.ops.buckets", ".offsets -> .buckets"),
        ("no-fairseq", "posnet_fairseq/text/new.py", "def f():\n    import hydra", "text.new -> hydra"),
        ("no-torch", "posnet_fairseq/shared/errors.py", "import torch", "shared.errors -> torch"),
        ("eval-data", "posnet_eval/inputs/new.py", "import fairseq", "inputs.new -> fairseq"),
        ("eval-data", "posnet_data_prep/prepare.py", "import fairseq", "prepare -> fairseq"),
        ("eval-or-data", "posnet_eval/inputs/new.py", "import posnet_data_prep.prepare", "-> posnet_data_prep.prepare"),
    ],
)
def test_a_contract_is_broken_by(contract, file, line, found, copied):
    with open(copied / file, "a", encoding="utf-8") as module:
        module.write(f"\n{line}\n")
    code, text = lint(copied, contract)
    assert code == 1
    assert "BROKEN" in text
    assert found in text
