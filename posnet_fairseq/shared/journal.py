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
from posnet_fairseq.shared.records import changed

_KIND = "posnet journal 1"  # first entry of the header: what the file is, and the version of its format


class Journal:
    """A file of a header and of records, one a line, each behind its checksum.

    Records are appended. What follows the last whole record, such as one that was being written when the process was
    killed, is dropped. The file is made at once and locked, so that no other process begins the same. What it holds of
    other work stays until the first record.

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
        try:
            # Opening another kind of file might wait for its other end.
            if os.path.lexists(path) and not stat.S_ISREG(path.stat().st_mode):
                raise _foreign(path)
            self._file = self._opened()
            try:
                self._whole = self._read(resume)
            except BaseException:
                self._file.close()
                raise
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}. Remove it, or give another output.") from error

    def _read(self, resume: bool) -> int:
        """Read the records of the same work.

        Returns:
            the bytes that stay: those of the header and of whole records, or none.
        """
        data = self._file.readall()
        self._is_ours = not data
        values, whole = _parsed(data)
        earlier = values[0] if values else None
        if earlier == self._header:
            self._file.truncate(whole)
            self.records = values[1:]
            return whole
        if isinstance(earlier, dict) and earlier.get("kind") == _KIND:
            if resume:
                different = ", ".join(changed(earlier, self._header))
                raise UsageError(
                    f"{self.path} is of other work, with a difference in: {different}. Give the same as then, or "
                    "remove the file to begin anew."
                )
        elif not (_line(self._header).startswith(data) or _is_cut_header(data)):
            raise _foreign(self.path)
        return 0

    def append(self, record: object) -> None:
        """Write a record, which json must be able to write.

        Raises:
            OSError: it cannot be written.
        """
        line = _line(record) if self._whole else _line(self._header) + _line(record)
        self._is_ours = True
        self._file.truncate(self._whole)
        self._file.seek(self._whole)
        left = line
        while left:
            left = left[self._file.write(left) :]
        self._whole += len(line)

    def close(self) -> None:
        """Leave the file to a later attempt, unless nothing was kept in it."""
        if self._is_ours and not self._whole:
            self.remove()
        self._file.close()

    def remove(self) -> None:
        """Remove the file, because the work is done."""
        if self._is_at_path(self._file):
            self.path.unlink(missing_ok=True)
        self._file.close()

    def _opened(self) -> io.FileIO:
        """The file, made if necessary, which no other process opens until it is closed.

        Without a buffer, so that a record that was written is in the file even if the process is killed.
        """
        while True:
            file = io.FileIO(self.path, "r+", opener=lambda path, flags: os.open(path, flags | os.O_CREAT, 0o666))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.close()
                raise UsageError(
                    f"{self.path}: another process writes to this file. Wait for it, or give another output."
                ) from error
            except OSError:  # some file systems have no locks
                pass
            if self._is_at_path(file):
                return file
            file.close()  # another process was done, and removed the file before it was locked here

    def _is_at_path(self, file: io.FileIO) -> bool:
        """Whether the path still leads to this file."""
        try:
            return not file.closed and os.path.samestat(os.fstat(file.fileno()), self.path.stat())
        except FileNotFoundError:
            return False


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


def _is_cut_header(data: bytes) -> bool:
    """Whether a header was being written when the process was killed, be it of other work."""
    return b"\n" not in data and data[9:].startswith(json.dumps({"kind": _KIND})[:-1].encode())  # behind a checksum


def _foreign(path: Path) -> UsageError:
    return UsageError(f"{path} is there, and posnet did not write it. Move it, or give another output.")
