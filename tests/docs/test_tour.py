"""The notebook docs/tour.ipynb runs from its first cell to its last, in an empty folder."""

import nbformat
import pytest
from nbclient import NotebookClient

from support.commands import ROOT

NOTEBOOK = ROOT / "docs/tour.ipynb"


def outputs(notebook):
    """What the code cells printed, and the kinds of what they displayed."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found = [output for cell in cells for output in cell.outputs]
    return "".join(output.get("text", "") for output in found), [kind for one in found for kind in one.get("data", {})]


@pytest.mark.thorough  # 90 s: prepares, trains, translates, draws
def test_every_cell_runs(tmp_path, monkeypatch):
    """With a training of a few updates."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    monkeypatch.setenv("UPDATES", "60")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    text, kinds = outputs(notebook)
    assert "rposnet" in text
    assert "BLEU" in text
    assert kinds.count("image/png") == 2
    assert (tmp_path / "tour/runs/data/rposnet_tiny_s1/report/report.html").exists()


def test_the_notebook_shows_what_came_out():
    """It is committed with its outputs, which fit on a page, and without errors."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    text, kinds = outputs(notebook)
    assert kinds.count("image/png") == 2
    assert "BLEU" in text
    assert "\x1b" not in text
    assert NOTEBOOK.stat().st_size < 600_000
