"""What a published package says of itself is consistent, requires what it imports, and bounds versions for reasons."""

import ast
import re
import runpy
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path

import pytest
import setuptools
import yaml
from markdown_it import MarkdownIt
from packaging.requirements import Requirement

from posnet_fairseq import __version__
from posnet_fairseq.analog.hardware import AIHWKIT
from support.commands import ROOT

# The last is a module beside a script.
OURS = {"posnet_fairseq", "posnet_eval", "posnet_data_prep", "machines"}


@pytest.fixture
def metadata(monkeypatch):
    """The arguments of setup() in setup.py."""
    given = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    return given


@pytest.fixture
def required(metadata):
    """All requirements of setup.py, as texts."""
    return {text for texts in (metadata["install_requires"], *metadata["extras_require"].values()) for text in texts}


def test_description_has_no_links_into_the_repository(metadata):
    page = MarkdownIt().enable("table").render(metadata["long_description"])
    links = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert any(link.startswith("https://aclanthology.org/") for link in links)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert "see RESULTS.md" in " ".join(page.split())  # the words of a link stay


def test_one_version(metadata):
    citation = yaml.safe_load((ROOT / "docs/CITATION.cff").read_text())
    (released, day), *_ = re.findall(r"^## \[(\d[^]]*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert metadata["version"] == citation["version"] == released == __version__
    assert str(citation["date-released"]) == day


def test_hosted_tests_and_classifiers_have_the_versions_of_python_that_posnet_supports(metadata):
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    tested = workflow["jobs"]["tests"]["strategy"]["matrix"]["python-version"]
    classified = [line.rsplit(" ", 1)[1] for line in metadata["classifiers"] if "Python ::" in line]
    assert tested == classified == ["3.11", "3.12", "3.13", "3.14"]
    assert metadata["python_requires"] == ">=3.11,<3.15"


def test_the_hint_to_install_aihwkit_names_the_versions_of_the_extra(metadata):
    analog = "\n".join(metadata["extras_require"]["analog"])
    assert re.findall(r"^aihwkit==([\d.]+);", analog, re.M) == sorted(set(AIHWKIT.values()))


def test_dockerfile():
    path = ROOT / "docs/docker/Dockerfile"
    done = subprocess.run([f"{sys.prefix}/bin/hadolint", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    copied = [name for line in re.findall(r"^COPY (.*)$", path.read_text(), re.M) for name in line.split()[:-1]]
    assert "posnet_fairseq" in copied
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_imported_packages_are_required(required):
    names_required = {Requirement(text).name.lower().replace("_", "-") for text in required}
    distributions = packages_distributions()
    for package in imported() - set(sys.stdlib_module_names) - OURS:
        names = {name.lower().replace("_", "-") for name in distributions.get(package, [package])}
        assert names & names_required, f"{package} is imported, and setup.py requires none of {names}"


def allows(package, name, version):
    """Whether an installed package can be beside a version of another."""
    found = [Requirement(text) for text in requires(package)]
    return all(version in each.specifier for each in found if each.name == name)


# Why a package is kept below a version, as what can be seen in the packages that are installed.
REASONS = {
    "sacrebleu": lambda: "_compute_segment_statistics" in (ROOT / "eval/metrics/sacrebleu_metrics.py").read_text(),
    "sentencepiece": lambda: not allows("unbabel-comet", "protobuf", "7.36.1"),
    "setuptools": lambda: "pkg_resources" in source("torchmetrics", "utilities/imports.py"),
    "transformers": lambda: "find_pruneable_heads" in source("bleurt_pytorch", "bleurt/modeling_bleurt.py"),
}


def source(package, path):
    return (Path(find_spec(package).origin).parent / path).read_text(encoding="utf-8")


def test_upper_bounds_have_reasons_that_hold(required):
    """Where one fails, try the newest version of that package, and remove its bound in setup.py and its reason here."""
    bounded = {Requirement(text).name for text in required if "<" in str(Requirement(text).specifier)}
    assert bounded == REASONS.keys()
    assert [name for name, holds in REASONS.items() if not holds()] == []


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
