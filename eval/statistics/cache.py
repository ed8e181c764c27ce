"""What has been computed for a segment is kept, and found again by its content.

One SQLite file for all metrics, models and test sets. The key of a row is a hash of the metric, of all that its numbers
depend on (model, versions, precision ...) and of the segment's text: a changed model or line is another key, so that
nothing ever has to be thrown away. Several runs may use the file at the same time.
"""

import contextlib
import errno
import hashlib
import json
import sqlite3
from pathlib import Path

import numpy as np

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import cache_folder

AT_ONCE = 500  # keys in a query
FORMAT = 1  # to be raised when posnet itself counts or scores in another way
PATIENCE = 60  # seconds to wait for another run's writing

_TABLES = """
CREATE TABLE IF NOT EXISTS statistics (key BLOB PRIMARY KEY, numbers BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS details (given TEXT PRIMARY KEY, details TEXT) WITHOUT ROWID;
"""


def usual_place():
    """Where the cache is if nothing else is said."""
    return cache_folder() / "scores.sqlite"


class SegmentCache:
    """Statistics of segments in a file.

    Args:
        path: of the file; it is made, with its folder.

    Attributes:
        full: the disk is full (or another reason not to write): nothing more is kept.

    Raises:
        UsageError: it can be neither read nor made, or is something else.
    """

    def __init__(self, path):
        self.path = Path(path)
        self.full = ""
        with self._explaining():
            if self.path.exists() and not self.path.is_file():  # SQLite would leave files of its own beside a device
                raise OSError(errno.EINVAL, "no regular file")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self.path, timeout=PATIENCE)
            self._database.executescript(_TABLES)

    def get(self, keys, width):
        """What is known under keys.

        Args:
            keys: different ones, of :func:`keys`.
            width: K, numbers of a segment.

        Returns:
            (len(keys), K) float64, rows of NaN for what is not known.
        """
        rows = np.full((len(keys), width), np.nan)
        places = {key: place for place, key in enumerate(keys)}
        with self._explaining():
            for start in range(0, len(keys), AT_ONCE):
                some = keys[start : start + AT_ONCE]
                query = f"SELECT key, numbers FROM statistics WHERE key IN ({','.join('?' * len(some))})"
                for key, numbers in self._database.execute(query, some):
                    # four bytes for each number if that is all it needs, as counts and most models' scores do
                    is_whole = isinstance(numbers, bytes)
                    kind = is_whole and {4 * width: "<f4", 8 * width: "<f8"}.get(len(numbers))
                    if kind:  # else something has damaged the row
                        rows[places[key]] = np.frombuffer(numbers, kind)
        return rows

    def put(self, keys, rows):
        """Keep (len(keys), K) statistics. Where that is impossible, the run goes on without."""
        if self.full:
            return
        short = rows.astype("<f4")
        exact = (short == rows).all(1)
        numbers = [
            (less if fits else row.astype("<f8")).tobytes() for less, row, fits in zip(short, rows, exact, strict=True)
        ]
        try:
            with self._database:
                self._database.executemany(
                    "INSERT OR IGNORE INTO statistics VALUES (?, ?)", zip(keys, numbers, strict=True)
                )
        except sqlite3.Error as error:
            self.full = str(error)

    def remember(self, metric, details):
        """Note what a model's name means today, for a day when the model is not there."""
        if metric.given and not self.full:
            with contextlib.suppress(sqlite3.Error), self._database:
                self._database.execute(
                    "INSERT OR REPLACE INTO details VALUES (?, ?)", (_given(metric), json.dumps(details))
                )

    def recall(self, metric):
        """What the model's name meant when it was last used, as a metric's details; None if it never was."""
        with self._explaining():
            found = self._database.execute("SELECT details FROM details WHERE given = ?", (_given(metric),)).fetchone()
        try:
            details = json.loads(found[0]) if found else None
        except (RecursionError, TypeError, ValueError):  # something has damaged the row
            return None
        return details if isinstance(details, dict) else None

    def close(self):
        """Close the file."""
        self._database.close()

    @contextlib.contextmanager
    def _explaining(self):
        try:
            yield
        except OSError as error:
            raise UsageError(f"cache {self.path}: {error.strerror}. Choose another place with --cache.") from error
        except sqlite3.OperationalError as error:
            raise UsageError(f"cache {self.path}: {error}. Choose another place with --cache.") from error
        except sqlite3.DatabaseError as error:
            raise UsageError(
                f"cache {self.path} is damaged or something else ({error}). Remove it, or choose another place with "
                "--cache."
            ) from error


def keys(metric, details, segments):
    """Under what the statistics of segments are kept.

    Args:
        metric: :class:`posnet_eval.metrics.base.Metric`.
        details: its own, see there.
        segments: list of :class:`posnet_eval.metrics.base.Segment`.

    Returns:
        list of hashes.
    """
    start = json.dumps([FORMAT, metric.name, details])
    found = []
    for source, hypothesis, references in segments:
        # a line break is in no line: nothing else could be joined to the same text
        text = "\n".join([start, source if metric.needs_source else "", hypothesis, *references])
        found.append(hashlib.blake2b(text.encode(), digest_size=16).digest())
    return found


def _given(metric):
    return f"{metric.name} {metric.given}" + (" lowercase" if metric.options.lowercase else "")
