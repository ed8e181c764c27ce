"""The walks through the code in docs/architecture.md lead through files and names that exist."""

import ast
import re

import pytest

from support.commands import ROOT

_ROW = re.compile(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)
TABLES = [
    _ROW.findall(table) for table in (ROOT / "docs/architecture.md").read_text().split("| file | function | |\n")[1:]
]


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


@pytest.mark.parametrize(("file", "name"), [row for table in TABLES for row in table])
def test_a_step_is_there(file, name):
    assert name in names(file)


def test_walks_are_short():
    assert [len(table) for table in TABLES] == [12, 12]
