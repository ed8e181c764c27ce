"""The files of a report: all of them, or none."""

import tempfile
from pathlib import Path

from posnet_eval.report.data import as_csv, as_json
from posnet_eval.report.latex import latex
from posnet_eval.report.tables import markdown


def _page(comparison):
    from posnet_eval.report.page import render  # takes matplotlib along

    return render(comparison)


FILES = {
    "report.html": _page,
    "report.md": markdown,
    "report.tex": latex,
    "report.csv": as_csv,
    "report.json": as_json,
}


def publish(comparison, folder):
    """Write the files of a report; what an earlier run wrote stays until all of them are written.

    Args:
        comparison: :class:`posnet_eval.results.Comparison`.
        folder: that is there.

    Returns:
        the paths.

    Raises:
        OSError: the disk is full, for instance; nothing has changed then.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as temporary:
        for name, write in FILES.items():
            Path(temporary, name).write_text(write(comparison), encoding="utf-8", newline="\n")
        return [Path(temporary, name).replace(Path(folder, name)) for name in FILES]
