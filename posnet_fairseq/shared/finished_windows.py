"""Where a text goes, a window of lines at a time: a stream, or a file, beside which finished windows are kept."""

import contextlib
import functools
import hashlib
import io
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import msgspec

from posnet_fairseq.shared.errors import UsageError, counted
from posnet_fairseq.shared.files import check_place, check_stdout, print_lines, reading, write_lines, writing
from posnet_fairseq.shared.output_paths import resolved, stream_target
from posnet_fairseq.shared.processes import try_lock
from posnet_fairseq.shared.records import changed
from posnet_fairseq.shared.schema import convert, loads

_KIND = "posnet-translate 1"  # first entry of OUTPUT.partial, whoever writes it, with the version of its format
_BEGINS = json.dumps({"kind": _KIND}).encode()[:-1]
_LONGEST = 240  # bytes of a file's name that leave room for another ending
Texts = Sequence[Sequence[str] | None]  # what the lines of output of a window are made of
Say = Callable[[str], None]  # says a remark


@dataclass
class Stream:
    """Standard output, a pipe or an open file, to which `write` writes the lines of each window at once."""

    write: Callable[[Sequence[str]], None]

    def has(self, texts: Texts) -> bool:
        """Return whether the next window is done."""
        return False

    def add(self, texts: Texts, lines: Sequence[str]) -> None:
        """Write the lines of output of the next window."""
        self.write(lines)


class _Finished(msgspec.Struct):
    texts: str  # digest of them
    lines: list[str]


class FinishedWindows:
    """The file OUTPUT.partial: a line of JSON about the work, and one for each window that is done.

    A window is appended when it is done. What follows the last whole line, because the process was killed while it
    wrote, is dropped. What was left of other `work`, plain values that the translations depend on besides the lines, is
    refused with `resume`, and else replaced, which `say` is told, as it is of windows of other lines.
    """

    def __init__(self, output: str, work: Mapping[str, Any], resume: bool, say: Say) -> None:
        self.path, self._output, self._say = place_beside(output), output, say
        foreign = UsageError(f"{self.path} is there, and posnet did not write it. Move it, or give another output.")
        if self.path.exists() and not self.path.is_file():
            raise foreign
        with reading(self.path):
            self._file = io.FileIO(self.path, "a+")  # without a buffer: what was written survives the process
        with contextlib.ExitStack() as refused:
            refused.callback(self._file.close)
            if not try_lock(self._file.fileno()):
                raise UsageError(f"{self.path}: another process writes to it. Wait, or give another output.")
            self._read(work, resume, foreign)
            refused.pop_all()

    def _read(self, work: Mapping[str, Any], resume: bool, foreign: UsageError) -> None:
        """Find the windows that are done."""
        self._number = 0  # of the next window
        self._digests, self._ends = list[str](), list[int]()  # of the windows; where each line of the file ends
        self._head = json.loads(json.dumps({"kind": _KIND, **work}))
        self._file.seek(0)
        start = self._file.read(len(_BEGINS))
        if not _BEGINS.startswith(start):
            raise foreign
        for end, line in self._lines():
            if not self._ends and line != self._head:
                other = f"{self.path} is of other work, with a difference in: {', '.join(changed(line, self._head))}"
                if resume:
                    raise UsageError(f"{other}. Give the same as then, or remove the file to begin anew.")
                self._say(f"{other}; it is replaced")
                break
            if self._ends:
                self._digests.append(line.texts)
            self._ends.append(end)
        self._is_ours = not start or bool(self._ends)

    def has(self, texts: Texts) -> bool:
        """Return whether the next window is done; if it was one of other lines, it and all that follow are not."""
        if self._number < len(self._digests) and self._digests[self._number] != _digest(texts):
            others = itertools.islice(self._lines(), self._number + 1, None)
            replaced = counted(sum(len(window.lines) for _, window in others), "line is", "lines are")
            self._say(f"{self.path}: the text has changed, so {replaced} replaced")
            del self._digests[self._number :], self._ends[self._number + 1 :]
        is_done = self._number < len(self._digests)
        self._number += is_done
        return is_done

    def add(self, texts: Texts, lines: Sequence[str]) -> None:
        """Keep the lines of output of the next window."""
        self._is_ours = True
        with writing(self.path):
            if not self._ends:
                self._append(self._head)
            self._append({"texts": _digest(texts), "lines": lines})
        self._digests.append(_digest(texts))
        self._number += 1

    def __iter__(self) -> Iterator[str]:
        """Yield the lines of output of all windows."""
        for number, (_, window) in enumerate(self._lines()):
            if 0 < number <= self._number:
                yield from window.lines

    def finish(self) -> None:
        """Write the output, and remove the file."""
        try:
            _refuse_kept(self._output)
            write_lines(self._output, self)
        except UsageError as error:
            kept = f" All lines are in {self.path}, from which the same command goes on." * self._is_there()
            raise UsageError(f"{error}{kept}") from error
        if self._is_there():
            self.path.unlink()

    def close(self) -> None:
        """Leave the file to a later attempt, unless nothing was kept in it."""
        if self._is_ours and not self._digests and self._is_there():
            self.path.unlink()
        self._file.close()

    def _is_there(self) -> bool:
        """Return whether the file still has its name, which may have become that of another file."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno()))
        return False

    def _append(self, value: object) -> None:
        self._file.truncate(self._ends[-1] if self._ends else 0)
        left = json.dumps(value).encode() + b"\n"
        while left:
            left = left[self._file.write(left) :]
        self._ends.append(self._file.tell())

    def _lines(self) -> Iterator[tuple[int, Any]]:
        """Yield the whole lines up to a damaged one, each with the place where it ends."""
        with open(os.dup(self._file.fileno()), "rb") as file, contextlib.suppress(ValueError):
            file.seek(0)
            for number, line in enumerate(file):
                value = convert(loads(line), _Finished, self.path) if number else loads(line)
                if line.endswith(b"\n"):
                    yield file.tell(), value


@contextlib.contextmanager
def open_output(
    output: str, work: Mapping[str, Any], resume: bool, say: Say, at_once: bool
) -> Iterator[Stream | FinishedWindows]:
    """Open the output of a text: ``-``, a pipe, or a file, which is complete or absent.

    A pipe is opened `at_once`, which waits for its reader, or when there is something to write, or at the end.
    """
    if output == "-":
        yield Stream(print_lines)
    elif (place := resolved(output, f"--output {output}"))[1]:
        with contextlib.ExitStack() as stack:

            @functools.cache
            def opened() -> TextIO:
                return stack.enter_context(open(stream_target(place[0]), "w", encoding="utf-8", newline="\n"))

            def write(lines: Sequence[str]) -> None:
                with writing(output):
                    opened().writelines(line + "\n" for line in lines)
                    opened().flush()

            if at_once:
                opened()
            yield Stream(write)
            opened()  # also if there was nothing to write: its reader waits for the end
    else:
        with contextlib.closing(FinishedWindows(output, work, resume, say)) as finished:
            yield finished
            finished.finish()


def check_output(output: str, inputs: Sequence[str | Path], resume: bool) -> bool:
    """Refuse an ``--output`` that overwrites what is read, also beside it, or cannot `resume`; return if a stream."""
    if output == "-":
        check_stdout()
    path, option = ("/dev/stdout", "standard output:") if output == "-" else (output, "--output")
    check_place(path, option, inputs)
    is_stream = resolved(path, f"{option} {path}")[1]
    if is_stream and resume:
        raise UsageError("--resume goes on with a file: give one by --output.")
    if not is_stream:
        _refuse_kept(output)
        check_place(place_beside(output), "", inputs)
    return is_stream


def place_beside(output: str) -> Path:
    """Return the place of OUTPUT.partial."""
    place, _ = resolved(output, f"--output {output}")
    return place.with_name(os.fsdecode(os.fsencode(place.name)[:_LONGEST]) + ".partial")


def _refuse_kept(output: str) -> None:
    """Refuse to replace a file in which a command keeps what it has finished, or is about to."""
    with contextlib.suppress(OSError), open(output, "rb") as file:
        if file.read(len(_BEGINS)) == _BEGINS:
            raise UsageError(f"{output} has the finished lines of another command. Give another output, or remove it.")
        if not try_lock(file.fileno()):
            raise UsageError(f"{output}: another process writes to it. Wait, or give another output.")


def _digest(texts: Texts) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
