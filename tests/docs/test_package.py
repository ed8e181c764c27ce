"""What a published package says of itself is consistent."""

import re
import runpy
import subprocess
import sys

import pytest
import setuptools
import yaml
from markdown_it import MarkdownIt

from posnet_fairseq import __version__
from posnet_fairseq.analog.hardware import AIHWKIT
from support.commands import ROOT


@pytest.fixture
def metadata(monkeypatch):
    """The arguments of setup() in setup.py."""
    given = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    return given


def test_description_has_no_links_into_the_repository(metadata):
    page = MarkdownIt().enable("table").render(metadata["long_description"])
    links = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert any(link.startswith("https://aclanthology.org/") for link in links)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert "see\nRESULTS.md" in page  # the words of a link stay


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
