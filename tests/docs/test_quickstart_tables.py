"""README.md's two tables of the quickstart show the scores of docs/quickstart.json."""

import json
import re

from support.commands import ROOT

SCORE = r"\d+\.\d ±\d+\.\d(?: †[↑↓=])?"


def test_both_tables_have_the_scores_of_the_quickstart():
    scores = json.loads((ROOT / "docs/quickstart.json").read_text())
    expected = [(*(row[metric] for metric in ("BLEU", "chrF")),) for row in scores.values()]
    assert list(scores) == ["transformer_pos", "rposnet"]
    text = (ROOT / "README.md").read_text()
    tables = text.split("test, en-de, 1,216 lines")[1:]
    assert len(tables) == 2
    for table in tables:
        assert re.findall(rf"({SCORE})\s+({SCORE})", table.split("```")[0]) == expected
