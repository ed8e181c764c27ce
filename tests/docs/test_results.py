"""The figures of RESULTS.md are those of docs/results, which posnet-plot makes of the committed results."""

import re

import pytest

from posnet_fairseq.studies.protocol import read_study
from support.commands import ROOT

TABLE = r"((?:^\|.*\n)+)"
# Columns of RESULTS.md that have another name in the table that they are taken from.
COLUMNS = {
    "2016": ("Scores on 2016 (test)", "BLEU"),
    "2017": ("Scores on 2017 (test1)", "BLEU"),
    "2017 COCO": ("Scores on 2017 COCO (test2)", "BLEU"),
    "2016 (lc, tok)": ("Scores on 2016 (test)", "BLEU (lc, tok)"),
    "sentences/s": ("Inference cost", "sentences per CPU s"),
    "whole sentences": ("Scores on whole sentences (test)", "BLEU"),
    "interface texts": ("Scores on interface texts (test1)", "BLEU"),
}


def table(text):
    """The rows of a table, each a dictionary of cells by column."""
    head, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines())
    return [dict(zip(head, row, strict=True)) for row in rows]


def generated(study):
    """The tables of a study, by title."""
    text = (ROOT / f"docs/results/{study}.md").read_text(encoding="utf-8")
    return {title: table(rows) for title, rows in re.findall(rf"^\*\*(.+)\*\*\n\n{TABLE}", text, re.M)}


STUDIES = {study: generated(study) for study in ("multi30k", "convergence")}
RESULTS = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
TABLES = re.findall(TABLE, RESULTS, re.M)


def expected(study, name, column):
    """The cell of a system: the only number of a cell with a number for each run, which – are unknown."""
    default = next(title for title in STUDIES[study] if title.startswith("Scores on "))
    title, source = COLUMNS.get(column, (default, column))
    rows = next(rows for known, rows in STUDIES[study].items() if known.startswith(title))
    cell = next(row[source] for row in rows if row[""] == name)
    return cell.replace("–", "").strip()


@pytest.mark.parametrize(("place", "study"), enumerate(STUDIES))
def test_scores_and_costs(place, study):
    rows = table(TABLES[place])
    for row in rows:
        assert {column: expected(study, row[""], column) for column in row if column} | {"": row[""]} == row
    systems = {row[""] for name, scores in STUDIES[study].items() for row in scores if name.startswith("Scores on ")}
    assert {row[""] for row in rows} == {name for name in systems if re.fullmatch(r"`\w+`", name)}


def test_claims():
    *_, claims = TABLES
    shown = {}
    for study, tables in STUDIES.items():
        says = {f"{claim.says} ({claim.source})": claim.says for claim in read_study(study).claims}
        for row in tables["Claims of the papers"]:
            cell = f"{row['BLEU']} ({row['95% interval']}), {row['holds here']}"
            shown.setdefault(says[row["claim"]], dict.fromkeys(STUDIES, "–"))[study] = cell
    assert {row.pop("claim"): row for row in table(claims)} == shown


def test_the_readme_has_the_scores_of_multi30k():
    rows = {row[""]: row["BLEU (lc, tok)"].split()[0] for row in next(iter(STUDIES["multi30k"].values()))}
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (readme,) = re.findall(rf"as in the literature:\n\n{TABLE}", text, re.M)
    order = [
        "Transformer-Tiny, as published (Wu et al. 2021)",
        "fairseq's Transformer (seed 1)",
        "`transformer_pos` on lowercased text (seed 1)",
        "`transformer_pos`",
        "`rposnet`",
    ]
    assert [row["BLEU"] for row in table(readme)] == [rows[name] for name in order]
    text = " ".join(RESULTS.split())
    for words, name in zip(("report", "own Transformer reaches", "`transformer_pos`"), order, strict=False):
        assert f"{words} {rows[name]}" in text
