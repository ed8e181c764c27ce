"""The documentation site is whole, and its worked example works."""

import html
import os
import re
import subprocess
import sys
import types

import pytest
from matplotlib.mathtext import MathTextParser

from posnet_fairseq import registry
from posnet_fairseq.registry import mixer_names
from posnet_fairseq.testing import check_mixer
from posnet_fairseq.transformer import model_options as model_config  # noqa: F401  (the first registers the mixers)
from support import documents
from support.commands import ROOT

pytestmark = pytest.mark.thorough  # 20 s: builds the site

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as it is published: warnings are errors."""
    folder = tmp_path_factory.mktemp("site")
    options = ["-W", "--keep-going", "-q", "-b", "html", "-d", folder / "cache"]
    done = subprocess.run([sys.executable, "-m", "sphinx", *options, DOCS, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("name", mixer_names())
def test_page_of_a_mixer(site, name):
    page = (site / "mixers" / f"{name}.html").read_text()
    for heading in ("When to use it", "Cost", "Options"):
        assert f"<h2>{heading}<" in page
    assert "_{tiny,multi30k,iwslt,base,big}" in page
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))
    assert re.search(r"Parameters of \w+_base with 43,650 words: [\d.]+M", words)
    assert "Multiplications of a layer: " in words


def test_prose_has_its_indices_where_they_belong(site):
    assert "W<sup>V</sup><sub>δ</sub> is applied to gated values" in (site / "mixers" / "translution.html").read_text()


def test_there_are_no_pages_of_mixers_that_are_gone():
    assert sorted(path.stem for path in (DOCS / "mixers").glob("*.md")) == sorted([*mixer_names(), "index"])


def test_files_of_the_repository_are_pages(site):
    for name, words in (
        ("readme", "Train, translate, score"),
        ("results", "Results on real text"),
        ("changelog", "Changelog"),
        ("contributing", "House rules"),
    ):
        assert words in (site / f"{name}.html").read_text()
    assert (site / "objects.inv").exists()


def test_worked_example(monkeypatch):
    """The mixers of docs/adding-a-mixer.md, and a test."""
    mixer, test, *others = documents.python("docs/adding-a-mixer.md")
    # Without the example itself, which somebody may have tried here.
    monkeypatch.setattr(registry, "_MIXERS", {n: kind for n, kind in registry._MIXERS.items() if n != "window"})
    exec(compile(mixer, "window.py", "exec"), {"__name__": "window"})
    for name, code in zip(("kernel", "decaying", "average"), others, strict=True):
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)  # a law pickles mixers
        exec(compile(code, f"{name}.py", "exec"), vars(module))
        check_mixer(name)
    assert "Eq" in registry.get_mixer("window").__doc__  # as tests/mixers/test_registry.py demands of every mixer
    found = {"__name__": "test_window"}
    exec(compile(test, "test_window.py", "exec"), found)
    for place in ("encoder", "decoder"):
        found["test_equals_formula"](place)
    # It can fail: with a wider window it does.
    wrong = {"__name__": "test_window"}
    exec(compile(test.replace("<= 3", "<= 4"), "test_window.py", "exec"), wrong)
    with pytest.raises(AssertionError):
        wrong["test_equals_formula"]("encoder")


def test_formulas_are_formulas(site):
    """All of them can be set: matplotlib reads the same TeX as the browser."""
    for name in mixer_names():
        page = (site / "mixers" / f"{name}.html").read_text()
        (formula,) = re.findall(r'<div class="math notranslate nohighlight">\s*\\\[(.*?)\\\]</div>', page, re.S)
        MathTextParser("path").parse(f"${html.unescape(formula)}$")
    assert r"\hat{α}_{nm} = (W_Q \tilde{n})\cdot E_{\mathrm{rel}}" in (site / "mixers/rposnet.html").read_text()
    assert (site / "mixers/index.html").read_text().count('class="math notranslate nohighlight"') == len(mixer_names())


def test_api_pages_have_the_docstrings(site):
    page = (site / "api.html").read_text()
    for name in (
        "load",
        "TranslationModel.translate",
        "load_language_model",
        "build_mixer",
        "TokenMixer.step",
        "Energy.table",
        "score",
    ):
        assert re.search(rf'id="posnet_[\w.]+{name}"', page), name


def test_pages_can_be_edited_where_the_repository_is_known(site, tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-d", site / "cache", DOCS, tmp_path / "site"]
    address = {
        "READTHEDOCS_GIT_CLONE_URL": "https://github.com/somebody/posnet.git",
        "READTHEDOCS_GIT_IDENTIFIER": "v1",
    }
    subprocess.run([*command, DOCS / "data.md"], env=os.environ | address, check=True, capture_output=True)
    assert "https://github.com/somebody/posnet/edit/v1/docs/data.md" in (tmp_path / "site/data.html").read_text()
