"""The rows of docs/ablations.md are those of the papers' tables. test_documented_commands.py runs them."""

import pytest

from support import documents

DOCUMENT = documents.ROOT / "docs/ablations.md"
COMMANDS = [command for command in documents.commands(DOCUMENT) if command.text.startswith("$TRAIN ")]


def rows(table):
    """The commands of a table, by the name of their directories."""
    return [command for command in COMMANDS if f"checkpoints/{table}-" in command.text]


ROWS = {
    "table4": 8,
    "table5": 5,
    "table6": 10,
    "irpe1": 5,
    "irpe2": 4,
    "irpe3": 4,
    "irpe4": 12,
    "kinds": 10,
    "width": 5,
    "words": 4,
    "on": 3,
}


@pytest.mark.parametrize(("table", "count"), ROWS.items())
def test_tables_are_complete_and_rows_differ(table, count):
    models, directories = map(set, zip(*(row.text.split(" --save-dir ") for row in rows(table)), strict=True))
    assert len(models) == len(directories) == count
