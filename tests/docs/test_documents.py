"""Documents are true to the code: the walks of docs/architecture.md, sentences and scores that are quoted."""

import ast
import json
import re

import pytest

from support.commands import ROOT

_ROW = re.compile(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)
WALKS = [
    _ROW.findall(table) for table in (ROOT / "docs/architecture.md").read_text().split("| file | function | |\n")[1:]
]
# What of each sentence that docs/troubleshooting.md quotes the code has in one piece.
QUOTED = [
    "would be lost. Give another name",
    "is there, and posnet-score did not write it",
    "All lines are in ",
    ": fairseq trains with it on a GPU",
    "this processor does not multiply in bf16",
    "the training diverged",
    "length ratio of source to target is unknown",
]
SCORE = r"\d+\.\d ±\d+\.\d(?: †[↑↓=])?"


def names(file):
    """Functions and classes of a file and what it imports, methods with their class."""
    found = set()
    for node in ast.parse((ROOT / "posnet_fairseq" / file).read_text()).body:
        if isinstance(node, ast.ImportFrom):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ClassDef):
            found.update(f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef))
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
    return found


@pytest.mark.parametrize(("file", "name"), [row for walk in WALKS for row in walk])
def test_a_step_of_a_walk_is_there(file, name):
    assert name in names(file)


def test_walks_are_short():
    assert [len(walk) for walk in WALKS] == [12, 12]


@pytest.fixture(scope="module")
def texts():
    """All texts in the source code, parts of f-strings by themselves."""
    return [
        node.value
        for package in ("posnet_fairseq", "eval", "data_prep")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


@pytest.mark.parametrize("sentence", QUOTED)
def test_quoted_sentence_is_one_of_the_code(sentence, texts):
    assert sentence in (ROOT / "docs/troubleshooting.md").read_text()
    assert any(sentence in text for text in texts)


def test_both_tables_of_the_readme_have_the_scores_of_the_quickstart():
    scores = json.loads((ROOT / "docs/quickstart.json").read_text())
    assert list(scores) == ["transformer_pos", "rposnet"]
    tables = (ROOT / "README.md").read_text().split("test, en-de, 1,216 lines")[1:]
    assert len(tables) == 2
    for table in tables:
        found = re.findall(rf"({SCORE})\s+({SCORE})", table.split("```")[0])
        assert found == [(row["BLEU"], row["chrF"]) for row in scores.values()]
