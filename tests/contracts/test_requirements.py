"""Every package that the code imports is among the requirements."""

import ast
import re
import runpy
import sys
from importlib.metadata import packages_distributions

import setuptools

from support.commands import ROOT

# The last is a module beside a script.
OURS = {"posnet_fairseq", "posnet_eval", "posnet_data_prep", "machines"}


def test_imported_packages_are_required(monkeypatch):
    settings = {}
    monkeypatch.setattr(setuptools, "setup", lambda **found: settings.update(found))
    runpy.run_path(str(ROOT / "setup.py"))
    required = {
        re.match(r"[\w.-]+", text)[0].lower().replace("_", "-")
        for texts in (settings["install_requires"], *settings["extras_require"].values())
        for text in texts
    }
    distributions = packages_distributions()
    for package in imported() - set(sys.stdlib_module_names) - OURS:
        names = {name.lower().replace("_", "-") for name in distributions.get(package, [package])}
        assert names & required, f"{package} is imported, and setup.py requires none of {names}"


def imported():
    """Names of all packages that a module of the three packages imports."""
    nodes = [
        node
        for folder in ("posnet_fairseq", "eval", "data_prep")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {name.partition(".")[0] for name in names}
