"""Writing of a report's files, all of them or none."""

import contextlib
import csv
import dataclasses
import fcntl
import functools
import importlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from posnet_eval.inputs.plan import ROW_COLUMNS
from posnet_eval.report.latex import latex
from posnet_eval.report.tables import markdown
from posnet_eval.statistics.results import Comparison, TestSetResult
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import LARGE, check_folder, check_place, write_lines
from posnet_fairseq.shared.records import digest, json_if_whole

# What a formula in a spreadsheet begins with.
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")


def as_json(comparison: Comparison) -> str:
    """Return everything except the texts, which are in files already."""
    content = vars(comparison) | {"test_sets": [_test_set(comparison, test_set) for test_set in comparison.test_sets]}
    return json.dumps(content, ensure_ascii=False, indent=1, default=_plain) + "\n"


def as_csv(comparison: Comparison) -> str:
    """Return the rows of :meth:`Comparison.rows`, with empty cells for what does not apply."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*ROW_COLUMNS, *map(_no_formula, comparison.columns)])
    for row in comparison.rows():
        writer.writerow([value if name == "mark" else _no_formula(value) for name, value in row.items()])
    return text.getvalue()


def as_tsv(comparison: Comparison) -> str:
    """Return the scores of segments, means over runs, with a column for each system and metric."""
    labels = {info.name: info.label for test_set in comparison.test_sets for info in test_set.metrics}
    columns = [(system, metric) for system in comparison.systems for metric in labels]
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    titles = [f"{system} {labels[metric]}" for system, metric in columns]
    writer.writerow(["test set", "line", *map(_no_formula, titles)])
    for test_set in comparison.test_sets:
        found = [test_set.segments.get(metric, {}).get(system) for system, metric in columns]
        for number in range(test_set.size):
            scores = ("" if one is None else f"{one[number]:.4f}" for one in found)
            writer.writerow([_no_formula(test_set.name), number + 1, *scores])
    return text.getvalue()


def _no_formula(value: Any) -> Any:
    """Return a cell that spreadsheets read as text, as OWASP advises (CSV injection); a number unchanged."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _test_set(comparison: Comparison, test_set: TestSetResult) -> dict[str, Any]:
    return {
        "name": test_set.name,
        "languages": test_set.languages,
        "size": test_set.size,
        "metrics": test_set.metrics,
        "scores": {
            system: {
                metric: _plain(score) | {"marks": comparison.marks(test_set, system, metric)}
                for metric, score in scores.items()
            }
            for system, scores in test_set.scores.items()
        },
        "differences": [{"system": a, "from": b, "metrics": found} for (a, b), found in test_set.differences.items()],
        "missing": test_set.missing,
        "by_length": test_set.by_length,
        "by_group": test_set.by_group,
        "remarks": test_set.remarks,
        "segments": test_set.segments,
    }


def _plain(value: Any) -> Any:
    return np.round(value, 4).tolist() if isinstance(value, np.ndarray) else dataclasses.asdict(value)


NOTE = ".report.files"  # hashes of a report's files while they are moved into its folder


FILES: dict[str, Callable[[Comparison], str]] = {
    "report.html": lambda comparison: importlib.import_module("posnet_eval.report.page").render(comparison),  # slow
    "report.md": markdown,
    "report.tex": latex,
    "report.csv": as_csv,
    "segments.tsv": as_tsv,
    "report.json": as_json,  # the last: it has the hashes of the others
}


def check_report_folder(folder: Path, inputs: Iterable[Path]) -> None:
    """Check that a report can be written into a folder without replacing files that posnet-score did not write."""
    check_folder(folder)
    if not folder.exists():
        return
    with _locked(folder):
        found = (json_if_whole(path, LARGE) for path in (folder / "report.json", folder / NOTE))
        report, begun = (each if isinstance(each, dict) else {} for each in found)
        known: Any = report.get("files")
        is_report = {"systems", "labels", "test_sets"} <= report.keys() and isinstance(known, dict)
        for name in FILES:
            path = folder / name
            check_place(path, inputs=inputs)
            if not os.path.lexists(path):
                continue
            if path.is_file() and not path.is_symlink():
                content = digest(path)
                is_whole = is_report and (name == "report.json" or known.get(name) == content)
                if is_whole or begun.get(name) == content:
                    continue
            raise UsageError(
                f"{path} is there, and posnet-score did not write it, or it was changed since. Move it away, or let "
                "the report be written elsewhere."
            )


def publish(comparison: Comparison, folder: Path, latex_intervals: bool = False) -> None:
    """Write the files of a report; those of an earlier run stay until all new ones are written."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    writers = FILES | ({"report.tex": functools.partial(latex, intervals=True)} if latex_intervals else {})
    with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as temporary:
        digests: dict[str, str] = {}
        for name, write in writers.items():
            content = write(dataclasses.replace(comparison, files=digests))
            Path(temporary, name).write_bytes(content.encode())
            digests[name] = digest(Path(temporary, name))
        with _locked(folder):
            write_lines(Path(folder, NOTE), [json.dumps(digests)])
            for name in FILES:
                Path(temporary, name).replace(Path(folder, name))
            Path(folder, NOTE).unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let no other run look at a report, or replace it, while this one does; where there are no locks, without."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
