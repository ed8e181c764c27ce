"""Writing of a report's files, all of them or none."""

import dataclasses
import functools
import hashlib
import importlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from posnet_eval.report.data import as_csv, as_json, as_tsv
from posnet_eval.report.latex import latex
from posnet_eval.report.tables import markdown
from posnet_eval.statistics.results import Comparison
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_folder, check_place, write_lines
from posnet_fairseq.shared.records import read_json

NOTE = ".report.files"  # hashes of a report's files while they are moved into its folder


FILES: dict[str, Callable[[Comparison], str]] = {
    "report.html": lambda comparison: importlib.import_module("posnet_eval.report.page").render(comparison),  # slow
    "report.md": markdown,
    "report.tex": latex,
    "report.csv": as_csv,
    "segments.tsv": as_tsv,
    "report.json": as_json,  # the last: it has the hashes of the others
}


def check(folder: Path, inputs: Iterable[Path]) -> None:
    """Check that a report can be written into a folder without replacing files that posnet-score did not write."""
    check_folder(folder)
    if not folder.exists():
        return
    report, begun = _read(folder / "report.json"), _read(folder / NOTE)
    known = report.get("files", {})  # early versions wrote none
    is_report = {"systems", "labels", "test_sets"} <= report.keys() and isinstance(known, dict)
    for name in FILES:
        path = folder / name
        check_place(path, inputs=inputs)
        if not os.path.lexists(path):
            continue
        if path.is_file() and not path.is_symlink():
            found = _digest(path.read_bytes())
            whole = is_report and (name == "report.json" or not known or known.get(name) == found)
            if whole or begun.get(name) == found:
                continue
        raise UsageError(
            f"{path} is there, and posnet-score did not write it, or it was changed since. Move it away, or let the "
            "report be written elsewhere."
        )


def _read(path: Path) -> dict[str, Any]:
    """Return the mapping in a JSON file, {} if there is none."""
    found = read_json(path)
    return found if isinstance(found, dict) else {}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def publish(comparison: Comparison, folder: Path, latex_intervals: bool = False) -> None:
    """Write the files of a report; those of an earlier run stay until all new ones are written."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    writers = FILES | ({"report.tex": functools.partial(latex, intervals=True)} if latex_intervals else {})
    with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as temporary:
        digests: dict[str, str] = {}
        for name, write in writers.items():
            content = write(dataclasses.replace(comparison, files=digests)).encode()
            digests[name] = _digest(content)
            Path(temporary, name).write_bytes(content)
        write_lines(Path(folder, NOTE), [json.dumps(digests)])
        for name in FILES:
            Path(temporary, name).replace(Path(folder, name))
    Path(folder, NOTE).unlink(missing_ok=True)  # another run may have done it
