"""A journal: results of long work, kept as they are made, so that the work goes on where it was stopped."""

import fcntl
import io
import json
import os
import stat
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import replacing
from posnet_fairseq.shared.stages import changed

_KIND = "posnet journal 1"  # first entry of the header: what the file is, and the version of its format


class Journal:
    """A file of a header and of records, one a line, each behind its checksum.

    Records are appended. What follows the last whole record, such as one that was being written when the process was
    killed, is dropped. The file is made with the first record.

    Args:
        path: of the file.
        header: plain values that identify the work. Records of other work are not read.
        resume: refuse the records of other work. Otherwise the first record replaces them.

    Attributes:
        records: of an earlier attempt at the same work, in order.

    Raises:
        UsageError: there is another file, the journal of other work, or one that another process writes to; or the
            file cannot be read.
    """

    def __init__(self, path: Path, header: Mapping[str, Any], resume: bool = False) -> None:
        self.path, self.records = path, list[Any]()
        self._header = {"kind": _KIND, **json.loads(json.dumps(header))}
        self._file: io.FileIO | None = None
        if not os.path.lexists(path):
            return
        try:
            # Opening another kind of file might wait for its other end.
            if not stat.S_ISREG(path.stat().st_mode):
                raise _foreign(path)
            file = self._opened()
            data = file.readall()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}. Remove it, or give another output.") from error
        values, whole = _parsed(data)
        earlier = values[0] if values else None
        if data and not (isinstance(earlier, dict) and earlier.get("kind") == _KIND):
            raise _foreign(path)
        if earlier == self._header:
            file.truncate(whole)
            file.seek(whole)
            self._file, self.records = file, values[1:]
        elif resume and isinstance(earlier, dict):
            different = ", ".join(changed(earlier, self._header))
            raise UsageError(
                f"{path} is of other work, with a difference in: {different}. Give the same as then, or remove the "
                "file to begin anew."
            )

    def append(self, record: object) -> None:
        """Write a record, which json must be able to write.

        Raises:
            OSError: it cannot be written.
            UsageError: the file cannot be made, or another process writes to it.
        """
        if self._file is None:
            with replacing(self.path) as temporary:
                temporary.write_bytes(_line(self._header))
            self._file = self._opened()
            self._file.seek(0, os.SEEK_END)
        line = _line(record)
        while line:
            line = line[self._file.write(line) :]

    def remove(self) -> None:
        """Remove the file, because the work is done."""
        if self._file is not None:
            self.path.unlink(missing_ok=True)
            self._file.close()
            self._file = None

    def _opened(self) -> io.FileIO:
        """The file, which no other process opens until it is closed.

        Without a buffer, so that a record that was written is in the file even if the process is killed.
        """
        file = io.FileIO(self.path, "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"{self.path}: another process writes to this file. Wait for it, or give another output."
            ) from error
        except OSError:  # some file systems have no locks
            pass
        return file


def _line(value: object) -> bytes:
    text = json.dumps(value).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parsed(data: bytes) -> tuple[list[Any], int]:
    """The values of all lines up to the first that is not whole, and their bytes."""
    values, whole = [], 0
    for line in data.split(b"\n")[:-1]:
        checksum, _, text = line.partition(b" ")
        if checksum != b"%08x" % zlib.crc32(text):
            break
        try:
            values.append(json.loads(text))
        except (ValueError, RecursionError):
            break
        whole += len(line) + 1
    return values, whole


def _foreign(path: Path) -> UsageError:
    return UsageError(f"{path} is there, and posnet did not write it. Move it, or give another output.")
