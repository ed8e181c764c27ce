"""Functions over the lines of large files: on all cores, in bounded memory, in order, and resumable."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO

import msgspec

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.processes import in_order
from posnet_fairseq.shared.progress import Bar
from posnet_fairseq.shared.schema import read_json

BLOCK = 2000  # lines that a process is given at once
SECONDS_BETWEEN_SAVES = 5.0

Rows = Sequence[tuple[str, ...]]  # a line of each source in a row
Columns = list[list[str]]  # lines for each target
LineFunction = Callable[[Rows], tuple[Columns, Counter[str]]]


def map_lines(
    function: LineFunction,
    sources: Sequence[Path],
    targets: Sequence[Path],
    processes: int,
    bar: Bar,
    resume: Path | None = None,
) -> Counter[str]:
    """Write files that a function makes of the lines of files; return the sum of the counts, as they first appear.

    The output does not depend on the number of processes. The function is inherited by them, not pickled.
    ``resume`` is a file of notes from which an interrupted run continues.
    """
    done = _noted(resume, sources, targets)
    bar.go_on_from(done.lines)
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(open(path, "rb")) for path in sources]
        writers = [stack.enter_context(open(path, "r+b" if done.lines else "wb")) for path in targets]
        for reader, offset in zip(readers, done.read, strict=True):
            reader.seek(offset)
        for writer, size in zip(writers, done.written, strict=True):
            writer.truncate(size)  # drops what an interrupted run wrote after its last note
            writer.seek(size)
        results = stack.enter_context(
            contextlib.closing(in_order(_BlockFunction(function), _blocks(readers), processes))
        )
        saved = time.monotonic()
        for read, lines, outputs, counts in results:
            for writer, output in zip(writers, outputs, strict=True):
                writer.write(output)
            done.add(lines, read, outputs, counts)
            bar.advance(lines)
            if resume and time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
                for writer in writers:
                    writer.flush()
                done.save(resume)
                saved = time.monotonic()
    if resume:
        done.save(resume)
    return Counter(done.counts)


def count_tokens(languages: Iterable[str], columns: Columns) -> Counter[str]:
    """Return the number of ``lines``, and of tokens between single spaces of the column of each language."""
    counts = Counter(lines=len(columns[0]))
    for language, column in zip(languages, columns, strict=True):
        counts[language] += sum(line.count(" ") + 1 for line in column if line)
    return +counts  # without zeros


# Texts of the next lines of each file, their sizes in bytes, and the number of lines.
_Block = tuple[list[bytes], list[int], int]


class _BlockFunction:
    """Applies a function of lines to a block of bytes."""

    def __init__(self, function: LineFunction) -> None:
        self._function = function

    def __call__(self, block: _Block) -> tuple[list[int], int, list[bytes], Counter[str]]:
        """Return the sizes of the block's texts, its number of lines, the outputs, and counts."""
        texts, read, lines = block
        columns = [text.decode("utf-8").split("\n")[:-1] for text in texts]
        results, counts = self._function(list(zip(*columns, strict=True)))
        return read, lines, ["".join(f"{line}\n" for line in column).encode() for column in results], counts


def _blocks(readers: Sequence[IO[bytes]]) -> Iterator[_Block]:
    """Yield blocks of the lines of several files, until the files end."""
    while True:
        blocks = [list(islice(reader, BLOCK)) for reader in readers]
        if len({len(block) for block in blocks}) > 1:
            names = " and ".join(reader.name for reader in readers)
            raise UsageError(f"{names} have different numbers of lines. Remove their folder and run again.")
        if not blocks or not blocks[0]:
            return
        texts = [b"".join(block) for block in blocks]
        yield texts, [len(text) for text in texts], len(blocks[0])


class _Done(msgspec.Struct):
    """Progress of a run: bytes read of each source and written to each target, lines of a source, sum of the counts."""

    read: list[int]
    written: list[int]
    lines: int = 0
    counts: dict[str, int] = {}

    def add(self, lines: int, read: Sequence[int], outputs: Sequence[bytes], counts: Counter[str]) -> None:
        """Count a block that has been written."""
        self.lines += lines
        self.read = [done + more for done, more in zip(self.read, read, strict=True)]
        self.written = [done + len(output) for done, output in zip(self.written, outputs, strict=True)]
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def save(self, path: Path) -> None:
        """Write the note."""
        write_lines(path, [msgspec.json.encode(self).decode()])


def _noted(path: Path | None, sources: Sequence[Path], targets: Sequence[Path]) -> _Done:
    """Return the noted progress; none if there is no note, it is damaged, or a file is shorter than noted."""
    with contextlib.suppress(UsageError):
        done = read_json(path, _Done) if path else None
        if done and done.lines > 0 and _reach(sources, done.read) and _reach(targets, done.written):
            return done
    return _Done([0] * len(sources), [0] * len(targets))


def _reach(paths: Sequence[Path], offsets: Sequence[int]) -> bool:
    """Return whether all files have at least the noted numbers of bytes."""
    return len(paths) == len(offsets) and all(
        path.is_file() and 0 <= offset <= path.stat().st_size for path, offset in zip(paths, offsets, strict=True)
    )
