"""A cache of the statistics of segments, by their content.

One SQLite file serves all metrics, models and test sets. The key of a row is a hash of the metric, of everything its
statistics depend on (model, versions, precision, ...) and of the segment's text. A changed model or line has another
key, so rows never become stale. Several runs may use the file at the same time.
"""

import contextlib
import errno
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posnet_eval.metrics.base import FloatArray, Metric, Segment
from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.shared.files import cache_folder
from posnet_fairseq.shared.schema import loads

BoolArray = NDArray[np.bool_]

AT_ONCE = 500  # keys in a query
FORMAT = 1  # to be raised when posnet itself counts or scores differently
PATIENCE = 60  # seconds to wait while another run writes

_TABLES = """
CREATE TABLE IF NOT EXISTS statistics (key BLOB PRIMARY KEY, numbers BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS details (given TEXT PRIMARY KEY, details TEXT) WITHOUT ROWID;
"""


def default_path() -> Path:
    """Return where the cache is by default."""
    return cache_folder() / "scores.sqlite"


class SegmentCache:
    """Statistics of segments in a file, which is created with its folder if it is missing, or in memory (None)."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.full = ""
        with self._explaining():
            if path and path.exists() and not path.is_file():  # SQLite would leave files of its own beside a device
                raise OSError(errno.EINVAL, "no regular file")
            if path:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path or ":memory:", timeout=PATIENCE)
            self._database.executescript(_TABLES)

    def get(self, keys: Sequence[bytes], width: int) -> tuple[FloatArray, BoolArray]:
        """Return (len(keys), K) cached statistics for distinct keys, and of which segments not all was read.

        Rows that are not cached are NaN. K is 2 or more.
        """
        rows, cut = np.full((len(keys), width), np.nan), np.zeros(len(keys), dtype=bool)
        places = {key: place for place, key in enumerate(keys)}
        with self._explaining():
            for start in range(0, len(keys), AT_ONCE):
                some = keys[start : start + AT_ONCE]
                query = f"SELECT key, numbers FROM statistics WHERE key IN ({','.join('?' * len(some))})"
                for key, numbers in self._database.execute(query, some):
                    # Four bytes for each number if that is exact, as it is for counts and most models' scores; one
                    # more if not all of the segment was read.
                    size, more = divmod(len(numbers), width) if isinstance(numbers, bytes) else (0, 0)
                    if size in (4, 8) and more < 2:  # else it is damaged
                        rows[places[key]] = np.frombuffer(numbers, f"<f{size}", count=width)
                        cut[places[key]] = more
        return rows, cut

    def put(self, keys: Iterable[bytes], rows: FloatArray, cut: BoolArray) -> None:
        """Cache statistics as of :meth:`get`; an error is kept in :attr:`full`, and the run goes on."""
        if self.full:
            return
        exact = (rows.astype("<f4") == rows).all(1)
        numbers = [
            row.astype("<f4" if fits else "<f8").tobytes() + bytes(more)
            for row, fits, more in zip(rows, exact, cut.tolist(), strict=True)
        ]
        try:
            with self._database:
                insert = "INSERT OR REPLACE INTO statistics VALUES (?, ?)"
                self._database.executemany(insert, zip(keys, numbers, strict=True))
        except sqlite3.Error as error:
            self.full = str(error)

    def remember(self, metric: Metric, details: Mapping[str, str]) -> None:
        """Cache the details of a metric's model under the name that was given, for runs without the model."""
        if metric.requested_model and not self.full:
            with contextlib.suppress(sqlite3.Error), self._database:
                self._database.execute(
                    "INSERT OR REPLACE INTO details VALUES (?, ?)", (_name_of(metric), json.dumps(details))
                )

    def recall(self, metric: Metric) -> dict[str, str] | None:
        """Return the details of the metric's model when it was last used; None if it never was."""
        with self._explaining():
            query = "SELECT details FROM details WHERE given = ?"
            found = self._database.execute(query, (_name_of(metric),)).fetchone()
        try:
            details: Any = loads(found[0]) if found else None
        except (TypeError, ValueError):  # the row is damaged
            return None
        return details if isinstance(details, dict) else None

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UsageError(
                f"cache {self.path}: {reason}. Choose another place with {option('cache')}; if it is a damaged cache, "
                "remove it."
            ) from error


def keys(metric: Metric, details: Mapping[str, str], segments: Iterable[Segment]) -> list[bytes]:
    """Return the keys of the statistics of segments by a metric with these :meth:`Metric.details`."""
    start = json.dumps([FORMAT, metric.name, details])
    found = []
    for source, hypothesis, references in segments:
        # lines have no line breaks, so that different segments never give equal texts
        text = "\n".join([start, source if metric.needs_source else "", hypothesis, *references])
        found.append(hashlib.blake2b(text.encode(), digest_size=16).digest())
    return found


def _name_of(metric: Metric) -> str:
    return f"{metric.name} {metric.requested_model}" + (" lowercase" if metric.options.lowercase else "")
