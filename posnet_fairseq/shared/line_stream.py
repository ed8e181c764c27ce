"""Lines as they come, from a pipe, a terminal or a file."""

import os
import select
import sys
from pathlib import Path

from posnet_fairseq.shared.compressed import opener_of
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import decoded, input_name, reading

_READ = 2**16  # bytes at once, the capacity of a pipe
_LONGEST = 2**20  # bytes of a line, about: what never ends would fill the memory


class IncomingLines:
    """Lines of UTF-8 text, read no earlier than they are asked for.

    Only "\\n" ends a line, as in :func:`posnet_fairseq.shared.files.read_lines`. Nothing is read in the
    background: the writer of a pipe waits when its reader is busy. The path ``-`` is standard input.
    """

    def __init__(self, path: str | Path) -> None:
        self._name = input_name(path)
        with reading(self._name):
            self._file: int = sys.stdin.fileno() if str(path) == "-" else os.open(path, os.O_RDONLY)
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLIN)
        self._data = bytearray()  # what was read, and not yet returned
        self._searched = 0  # bytes of it without a line end
        self._number, self._offset = 0, 0  # lines that were returned, and their bytes
        self._ended = False

    def take(self, most: int) -> list[str]:
        """Return up to `most` lines without their ends: one, waited for if necessary, and those that are there already.

        Returns:
            [] at the end of the input.

        Raises:
            UsageError: the first line is not UTF-8, has a NUL byte, or more than a mebibyte. Lines in front of it are
                returned first.
        """
        lines: list[str] = []
        while len(lines) < most and (part := self._next(wait=not lines)) is not None:
            try:
                line = decoded(part, self._name, self._number + 1, self._offset)
            except UsageError:
                if not lines:
                    raise
                break
            lines.append(line.removesuffix("\r"))
            self._number += 1
            self._offset += len(part) + 1
            del self._data[: len(part) + 1]
            self._searched = 0
        return lines

    def _next(self, wait: bool) -> bytearray | None:
        """Return the next line in bytes, which stays; None at the end, or if it is not there yet and not waited for."""
        while (end := self._data.find(b"\n", self._searched)) < 0:
            self._searched = len(self._data)
            if self._ended:
                return self._data[:] or None  # a last line without an end
            if wait and self._searched > _LONGEST:
                raise UsageError(
                    f"{self._name}: line {self._number + 1} has more than {_LONGEST:,} bytes. Break it into sentences."
                )
            if not wait and (self._searched > _LONGEST or not self._poll.poll(0)):  # not even the end is there
                return None
            self._read()
        return self._data[:end]

    def _read(self) -> None:
        with reading(self._name):
            data = os.read(self._file, _READ)
        if not self._number and not self._data and opener_of(data, self._name):
            raise UsageError(f"{self._name} is compressed. Pipe the decompressed text in, as zcat prints it.")
        self._data += data
        self._ended = not data
