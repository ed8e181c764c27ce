"""The reports of posnet-analog that docs/crossbars.md shows."""

import json
import re

import pytest

from posnet_fairseq.plots import crossbars
from support.commands import ROOT

FOLDERS = {kind: sorted((ROOT / "results" / "crossbars" / kind).iterdir()) for kind in ("time", "bits")}
NOISE = sorted((ROOT / "results" / "crossbars" / "noise").iterdir())


@pytest.mark.parametrize("kind", FOLDERS)
def test_committed_reports_are_drawn(tmp_path, kind):
    made = crossbars.draw(list(map(str, FOLDERS[kind])), tmp_path / kind)
    assert {path.name for path in made} == {f"{kind}.png", f"{kind}.svg"}


@pytest.mark.parametrize("folder", [*FOLDERS["time"], *NOISE], ids=lambda folder: folder.name)
def test_the_tables_have_the_scores_of_the_reports(folder):
    text = (ROOT / "docs/crossbars.md").read_text(encoding="utf-8")
    rows = json.loads((folder / "report.json").read_text(encoding="utf-8"))["scores"]
    scores = [f"{row['score']:.1f}" for row in rows if row["metric"] == "BLEU"]
    (line,) = re.findall(rf"^\| `{folder.name}` \| (.*) \|$", text, re.M)
    assert line.split(" | ") == scores
