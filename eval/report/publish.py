"""The files of a report: all of them, or none."""

import tempfile
from pathlib import Path

from posnet_eval.report.data import as_csv, as_json
from posnet_eval.report.latex import latex
from posnet_eval.report.tables import markdown
from posnet_fairseq.errors import UsageError


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


def check_folder(folder):
    """Refuse a place where no report can be written. Done before the work, not after.

    Raises:
        UsageError: it is a file, or cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"--out {folder}: {error.strerror}. Choose another folder.") from error


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
