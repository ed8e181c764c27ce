"""The files of a report: all of them, or none."""

import dataclasses
import hashlib
import json
import os
import tempfile
from pathlib import Path

from posnet_eval.report.data import as_csv, as_json
from posnet_eval.report.latex import latex
from posnet_eval.report.tables import markdown
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_folder, check_place, write_lines

NOTE = ".report.files"  # hashes of the files of a report while they are put into its folder


def _page(comparison):
    from posnet_eval.report.page import render  # takes matplotlib along

    return render(comparison)


FILES = {
    "report.html": _page,
    "report.md": markdown,
    "report.tex": latex,
    "report.csv": as_csv,
    "report.json": as_json,  # the last: it tells the others' hashes
}


def check(folder, inputs):
    """Refuse a folder where a report cannot be written, or would take the place of what posnet-score did not write.

    Args:
        folder: which may not be there.
        inputs: paths of files that are read.

    Raises:
        UsageError: see above.
    """
    check_folder(folder)
    if not folder.exists():
        return
    known, begun = _digests(folder / "report.json"), _note(folder)
    for name in FILES:
        path = folder / name
        check_place(path, inputs=inputs)
        if os.path.lexists(path) and (path.is_symlink() or not path.is_file() or not _is_ours(path, known, begun)):
            raise UsageError(
                f"{path} is there, and posnet-score did not write it, or it was changed since. Move it away, or choose "
                "another --out."
            )


def _is_ours(path, known, begun):
    """Whether a file is as a report says whose hashes are given.

    Args:
        path: of the file.
        known: of the report that is there, None if there is none.
        begun: of one whose files were being put there when it was stopped.
    """
    found = _digest(path.read_bytes())
    if begun.get(path.name) == found:
        return True
    return known is not None and (path.name == "report.json" or not known or known.get(path.name) == found)


def _note(folder):
    """The hashes of the files that were being put into a folder when that was stopped, {} if it was not."""
    try:
        found = json.loads((folder / NOTE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _digests(path):
    """The hashes in a report.json: {} in one of an early version, None if it is something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return content.get("files", {}) if {"systems", "labels", "test_sets"} <= content.keys() else None
    except (OSError, ValueError, AttributeError):
        return None


def _digest(content):
    return hashlib.sha256(content).hexdigest()


def publish(comparison, folder):
    """Write the files of a report; what an earlier run wrote stays until all of them are written.

    Args:
        comparison: :class:`posnet_eval.statistics.results.Comparison`.
        folder: which is made.

    Returns:
        the paths.

    Raises:
        OSError: the disk is full, for instance; nothing has changed then.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as temporary:
        digests = {}
        for name, write in FILES.items():
            content = write(dataclasses.replace(comparison, files=digests)).encode()
            digests[name] = _digest(content)
            Path(temporary, name).write_bytes(content)
        write_lines(Path(folder, NOTE), [json.dumps(digests)])
        paths = [Path(temporary, name).replace(Path(folder, name)) for name in FILES]
    Path(folder, NOTE).unlink(missing_ok=True)  # another run may have done it
    return paths
