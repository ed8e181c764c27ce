"""Where translations go, a window of lines at a time: a stream, or a file, beside which finished windows are kept."""

import argparse
import contextlib
import functools
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import msgspec

from posnet_fairseq.inference.model_folder import files_of_models
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_place, check_stdout, print_lines, reading, write_lines, writing
from posnet_fairseq.shared.output_paths import resolved, stream_target
from posnet_fairseq.shared.processes import try_lock
from posnet_fairseq.shared.records import changed
from posnet_fairseq.shared.schema import convert, loads

_KIND = "posnet-translate 1"  # first entry of OUTPUT.partial: what it is, and the version of its format
_BEGINS = json.dumps({"kind": _KIND}).encode()[:-1]
_LONGEST = 240  # bytes of a file's name that leave room for another ending
Texts = Sequence[Sequence[str] | None]  # lines of a window, and what their translations begin with


@dataclass
class Stream:
    """Standard output, a pipe or an open file, to which `write` writes the lines of each window at once."""

    write: Callable[[Sequence[str]], None]
    remark: str = ""

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
    refused with `resume`, and else replaced, which a `remark` says.
    """

    remark = ""

    def __init__(self, output: str, work: Mapping[str, Any], resume: bool) -> None:
        self.path, self._output = place_beside(output), output
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
                self.remark = f"{other}; it is replaced"
                break
            if self._ends:
                self._digests.append(line.texts)
            self._ends.append(end)
        self._is_ours = not start or bool(self._ends)

    def has(self, texts: Texts) -> bool:
        """Return whether the next window is done; if it was one of other lines, it and all that follow are not."""
        if self._number < len(self._digests) and self._digests[self._number] != _digest(texts):
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
    output: str, work: Mapping[str, Any], resume: bool, at_once: bool
) -> Iterator[Stream | FinishedWindows]:
    """Open the output of a translation: ``-``, a pipe, or a file, which is complete or absent.

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
        with contextlib.closing(FinishedWindows(output, work, resume)) as finished:
            yield finished
            finished.finish()


def check_places(options: argparse.Namespace) -> None:
    """Refuse outputs that would overwrite what is read, and what does not go with --stream or --resume."""
    name, second, _ = second_input(options)
    optional = (second, options.sentencepiece_model, options.bpe_codes, options.shortlist)
    inputs = [options.input, *files_of_models(options.checkpoint), *filter(None, optional)]
    output = options.output
    if output == "-":
        check_stdout()
    path, option = ("/dev/stdout", "standard output:") if output == "-" else (output, "--output")
    check_place(path, option, inputs)
    is_stream = resolved(path, f"{option} {path}")[1]
    if not is_stream:
        _refuse_kept(output)
        check_place(place_beside(output), "", inputs)
    problem = ""
    if options.resume and is_stream:
        problem = "--resume goes on with a file: give one by --output"
    elif second == "-" == options.input:
        problem = f"{name} - and --input -: standard input can be one of them. Give a file for the other"
    elif options.stream and not is_stream:
        problem = (
            f"--output {output}: --stream writes to pipes, line by line. Leave it out, or redirect standard output"
        )
    elif options.stream and second:
        problem = f"{name} {second} with --stream: leave one of the two out"
    elif options.stream and options.processes not in (None, 1):
        problem = f"--processes {options.processes} with --stream: leave one of the two out"
    if problem:
        raise UsageError(f"{problem}.")
    for path in [options.input, *([second] if second else [])]:
        if path != "-":  # one that is not there is missed before the model is loaded
            with reading(path):
                os.stat(path)


def second_input(options: argparse.Namespace) -> tuple[str, str | None, str | None]:
    """Return the option that gives a second text for each line, its path, or the text of --prefix for all lines."""
    if options.score_translations:
        return "--score-translations", options.score_translations, None
    prefix = options.prefix
    is_text = prefix and prefix != "-" and "/" not in prefix and not os.path.lexists(prefix)
    return ("--prefix", None, prefix) if is_text else ("--prefix", prefix, None)


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
