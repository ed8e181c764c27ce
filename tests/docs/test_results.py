"""The figures of RESULTS.md are those of docs/results, which posnet-plot makes of the committed results."""

import json
import re
from collections import defaultdict
from statistics import mean

import pytest

from posnet_fairseq.studies.protocol import read_study
from posnet_fairseq.studies.results import read_all
from support.commands import ROOT

TABLE = r"((?:^\|.*\n)+)"
# Columns of RESULTS.md that have another name in the table that they are taken from.
COLUMNS = {
    "2016": ("Scores on 2016 (test)", "BLEU"),
    "2017": ("Scores on 2017 (test1)", "BLEU"),
    "2017 COCO": ("Scores on 2017 COCO (test2)", "BLEU"),
    "2016 (lc, tok)": ("Scores on 2016 (test)", "BLEU (lc, tok)"),
    "update": ("Training cost", "cost of an update"),
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
    """The cell of a system: of one with a number for each run, the mean of those that are known (not –)."""
    default = next(title for title in STUDIES[study] if title.startswith("Scores on "))
    title, source = COLUMNS.get(column, (default, column))
    rows = next(rows for known, rows in STUDIES[study].items() if known.startswith(title))
    cell = next(row[source] for row in rows if row[""] == name)
    if column not in ("update", "sentences/s"):
        return cell
    known = [number for number in cell.split() if number != "–"]
    return known[0] if len(known) == 1 else f"{mean(map(float, known)):.2f}" if known else ""


@pytest.mark.parametrize(("place", "study"), enumerate(STUDIES))
def test_scores_and_costs(place, study):
    rows = table(TABLES[place])
    for row in rows:
        assert {column: expected(study, row[""], column) for column in row if column} | {"": row[""]} == row
    seeds = {name: cells[0] for name, cells in scores(study, "seeds").items()}
    assert [row[""] for row in rows] == [name for name in seeds if study == "multi30k" or seeds[name] != "1"]


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


def scores(study, column):
    """The cells of each system in the tables of scores, test set by test set."""
    cells = defaultdict(list)
    for title, rows in STUDIES[study].items():
        for row in rows if title.startswith("Scores on ") else []:
            if re.fullmatch(r"`\w+`", row[""]):
                cells[row[""]].append(row[column])
    return cells


def number(cell):
    return float(cell.replace("−", "-").split()[0])


def percent(study, name):
    """How many percent more an update costs than one of transformer_pos, run by run."""
    (row,) = (row for row in STUDIES[study]["Training cost"] if row[""] == f"`{name}`")
    return sorted(round(100 * (float(cost) - 1)) for cost in row["cost of an update"].split())


def detectable(study):
    """The differences in BLEU on the first test set that are found, by the seeds of both systems."""
    rows = STUDIES[study]["Detectable differences"]
    of_bleu = [row for row in rows if (row["test set"], row["metric"]) == (rows[0]["test set"], "BLEU")]
    return {row["seeds"]: row["detectable"] for row in of_bleu}


def by_joined_sentences(study):
    """The rows of BLEU by the number of sentences joined to a line."""
    (rows,) = (rows for title, rows in generated(study).items() if title.startswith("BLEU by the number"))
    return rows


def length_of_seven(row):
    """The length of the translations of seven sentences, in percent of the references'."""
    return 100 * float(re.search(r"\((.+)\)", row["7"])[1])


def multi30k():
    """The figures in the text on Multi30k, each with the words around it."""
    study, folder, bleu = read_study("multi30k"), ROOT / "results/multi30k", scores("multi30k", "BLEU")
    systems = read_all(folder, study)
    planned = sum(len(system.seeds) for system in study.systems.values())
    yield f"{sum(map(len, systems.values()))} of the {planned} runs of the protocol"
    words = "Wu et al. (ACL 2021) report", "Transformer (post-norm) reaches", "posnet's (pre-norm)"
    for says, published in zip(words, study.published, strict=True):
        yield f"{says} {published.bleu['test']:.1f}"
    marks = {name: "".join(re.findall("†[↑↓]", cells[0])) for name, cells in bleu.items()}
    assert {name: mark for name, mark in marks.items() if mark} == {"`rope`": "†↑", "`gaussiannet`": "†↓"}
    others = [(name, place) for name, cells in bleu.items() for place in (1, 2) if "†" in cells[place]]
    assert others == [("`rposnet`", 1), ("`gaussiannet`", 2)]
    worse = [{name[1:-1] for name, cells in bleu.items() if "‡↓" in cells[place]} for place in range(3)]
    on_2016 = {"gaussiannet", "retention", "ssru_decoder", "gated_deltanet", "mamba2", "mamba2_hybrid"}
    assert worse == [on_2016, {"gaussiannet"}, {"gaussiannet", "rposnet_ungated"}]
    counted = {(row["from"], row["metric"]): row for row in STUDIES["multi30k"]["Significant differences"]}
    of_bleu, of_all = counted["`transformer_pos`", "BLEU"], counted["all", ""]
    yield f"{of_bleu['p ≤ .05']} of {of_bleu['tests']} tests (by chance: {round(number(of_bleu['by chance']))})"
    assert of_bleu["after Holm's correction"] == "0"
    assert all("†↑" in cell for cell in scores("multi30k", "chrF")["`rope`"])
    yield f"Of {of_all['tests']} tests of BLEU and chrF against the two baselines, {of_all['p ≤ .05']} are significant"
    yield f"{round(number(of_all['by chance']))} would be by chance"
    differences = {name: number(first) - number(bleu["`transformer_pos`"][0]) for name, (first, *_) in bleu.items()}
    assert differences.pop("`transformer_pos`") == 0
    most = max(map(abs, differences.values()))
    yield f"on 2016, all {len(differences)} others are within {most:.1f} BLEU of the Transformer"
    hours = {row[""]: number(row["CPU h"]) for row in next(iter(STUDIES["multi30k"].values())) if row["CPU h"] != "–"}
    less = sum(of_one < hours["`transformer_pos`"] for of_one in hours.values())
    claims = {row["systems"]: row for row in STUDIES["multi30k"]["Claims of the papers"]}
    as_good = [claims[f"`{name}` − `transformer_pos`"] for name in ("rposnet", "ssru_decoder")]
    assert [row["holds here"] for row in as_good] == ["yes", "yes"]
    assert max(hours["`rposnet`"], hours["`ssru_decoder`"]) < hours["`transformer_pos`"]
    yield f"Like {less - 2} others, they take fewer CPU hours"
    lower = [row["95% interval"].split()[0] for row in as_good]
    assert number(lower[1]) < -0.5 < number(lower[0])
    yield f"SSRU may lose more than 0.5 BLEU: its interval begins at {lower[1]})"
    joined = by_joined_sentences("multi30k")
    yield f"The {len(joined)} systems tested (neither baseline) have "
    one, two, five, seven = ([number(row[count]) for row in joined] for count in "1257")
    yield f"{min(one)} to {max(one)} BLEU for one, {min(two)} to {max(two)} for two"
    yield f"{min(five)} to {max(five)} for five, and {min(seven)} to {max(seven)} for seven"
    assert not {"`transformer_pos`", "`shaw`"} & {row[""] for row in joined}
    lengths = {row[""]: length_of_seven(row) for row in joined}
    longest = lengths.pop("`mamba2`")
    least, most = min(lengths.values()), max(lengths.values())
    yield f"{least:.0f} to {most:.0f}% of the references' length, but {longest:.0f}% with `mamba2`"
    changes = [
        abs(of_one.int8.bleu.score - of_one.float32.bleu.score)
        for results in systems.values()
        for result in results
        for of_one in result.test_sets.values()
    ]
    assert 0.5 < max(changes) < 0.6
    yield "int8 changes the BLEU of a run by less than 0.6"
    trained = defaultdict(set)
    for path in folder.glob("*.json"):
        content = json.loads(path.read_text())
        trained[content["system"]].add(content["training"].get("precision", "fp32"))
    assert trained.keys() == systems.keys()
    for baseline in study.baselines:
        assert trained[baseline] == {"fp32", "bf16"}
    in_bf16 = sum(precisions == {"bf16"} for precisions in trained.values())
    yield f"{in_bf16} of its {len(trained)} systems ran in bf16 only"
    found = detectable("multi30k")
    yield f"a true difference of {found['3 and 3']} BLEU on 2016"
    yield f"or {found['1 and 3']} ("


def joined():
    """The figures in the text on trainings with joined sentences, as above."""
    found = {}
    for row in by_joined_sentences("multi30k-joined"):
        one, two, five, seven = (number(row[count]) for count in "1257")
        found[row[""]] = f"{one}, {two}, {five}, and {seven} ({length_of_seven(row):.0f}%"
    yield f"Trained on one to five in a line, `rposnet` has {found.pop('`rposnet`')} of the length)"
    yield f"`transformer_pos` {found.pop('`transformer_pos`')};"
    assert not found


def convergence():
    """The figures in the text on convergence, as above."""
    cells = {name: first for name, (first, *_) in scores("convergence", "BLEU").items()}
    bleu = {name: number(cell) for name, cell in cells.items()}
    content_based = "rope", "relative", "alpha_translution", "shaw", "translution", "irpe"
    position_based = "rposnet", "rposnet_ungated", "gaussiannet", "lightconv"
    relative = [f"`{name}`" for name in (*content_based, *position_based)]
    assert len(relative) == 10
    gains = [bleu[name] - bleu["`transformer_pos`"] for name in relative]
    absolute = sorted(bleu[f"`{name}`"] - bleu["`transformer_pos`"] for name in ("linearnet", "aposnet", "glinearnet"))
    yield f"by {min(gains):.1f} to {max(gains):.1f} BLEU; learned absolute ones"
    yield f"after 6,000 updates: relative positions gain {min(gains):.0f} to {max(gains):.0f} BLEU"
    yield f"`glinearnet`) gain {absolute[0]:.1f} to {absolute[-1]:.1f}"
    claims = {row["systems"]: row for row in STUDIES["convergence"]["Claims of the papers"]}
    yield f"attention on whole sentences** ({claims['`rposnet` − `shaw`']['BLEU']})"
    assert all("†↑" in cells[name] for name in relative)
    assert [name for name, cell in cells.items() if "‡↑" in cell] == ["`rope`", "`relative`"]
    assert len(cells) - 1 == 15  # comparisons with shaw
    gates = "`rposnet` − `rposnet_ungated`", "`transformer_pos_gated` − `transformer_pos`", "`glinearnet` − `linearnet`"
    assert [claims[pair]["holds here"] for pair in gates] == ["no"] * 3
    assert percent("convergence", "gaussiannet")[0] == percent("convergence", "linearnet")[0]
    yield f"{-percent('convergence', 'linearnet')[0]}% less CPU time per update than the Transformer"
    least, *_, most = percent("convergence", "alpha_translution")
    yield f"costs {least} to {most}% more"
    yield f"Translution costs {percent('convergence', 'translution')[0]}% more"

    def fall(results):
        of_all = (result.training.validation for result in results)
        courses = [dict(zip(course.updates, course.perplexity, strict=True)) for course in of_all]
        return mean(100 * (1 - course[6000] / course[5000]) for course in courses)

    systems = read_all(ROOT / "results/convergence", read_study("convergence"))
    yield f"{sum(len(results) == 1 for results in systems.values())} others have one"
    falls = {name: fall(results) for name, results in systems.items()}
    of_transformer = falls.pop("transformer_pos")
    yield f"fell by {min(falls.values()):.0f} to {max(falls.values()):.0f}%, the Transformer's by {of_transformer:.0f}%"
    found = detectable("convergence")
    yield f"({found['3 and 3']} on whole sentences)"
    yield f"{found['1 and 3']}) if one system has a single seed"


def crossbars():
    """The figures in the text on crossbars, as above."""
    text = (ROOT / "docs/crossbars.md").read_text(encoding="utf-8")
    rows = {row["BLEU"]: row for rows in re.findall(TABLE, text, re.M) for row in table(rows) if "1 d" in row}
    lost = {name: f"{float(row['digital']) - float(row['1 d']):.1f}" for name, row in rows.items()}
    yield f"Shaw et al.'s attention has lost {lost['`shaw`']} BLEU, rPosNet {lost['`rposnet`']}"
    yield f"and GaussianNet {lost['`gaussiannet`']}:"


# What is left are numbers of the data, the protocols, the tests and the literature.
OTHERS = {*"1 2 5 7 12 18% 80% 95% .05 ±1 1,000 6,000 8,000 29,000 50,777 2016 2017".split()}


def test_the_text_has_the_figures_of_the_results():
    text = " ".join(re.sub(TABLE, "", RESULTS, flags=re.M).split())
    for words in (*multi30k(), *joined(), *convergence(), *crossbars()):
        assert words in text
        text = text.replace(words, "")
    left = set(re.findall(r"(?<![\w.,])[±−+]?[.\d][\d.,]*(?<![.,])%?", text))
    assert left == OTHERS, left
