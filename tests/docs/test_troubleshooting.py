"""The sentences of posnet that docs/troubleshooting.md quotes are those of the code."""

import ast

import pytest

from support.commands import ROOT

# What of each quoted sentence the code has in one piece.
QUOTED = [
    "would be lost. Give another name",
    "is there, and posnet-score did not write it",
    "What was to be written is in ",
    ": fairseq trains with it on a GPU",
    "the training diverged",
    "length ratio of source to target is unknown",
]


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
