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

    def of_block(texts: list[bytes]) -> tuple[list[int], int, list[bytes], Counter[str]]:
        columns = [text.decode("utf-8").split("\n")[:-1] for text in texts]
        results, counts = function(list(zip(*columns, strict=True)))
        outputs = ["".join(f"{line}\n" for line in column).encode() for column in results]
        return list(map(len, texts)), len(columns[0]), outputs, counts

    done = _noted(resume, sources, targets)
    total = Counter(done.counts)
    if done.lines:  # else a bar of several files goes on
        bar.go_on_from(done.lines)
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(open(path, "rb")) for path in sources]
        writers = [stack.enter_context(open(path, "r+b" if done.lines else "wb")) for path in targets]
        for reader, offset in zip(readers, done.read, strict=True):
            reader.seek(offset)
        for writer, size in zip(writers, done.written, strict=True):
            writer.truncate(size)  # drops what an interrupted run wrote after its last note
            writer.seek(size)

        def save() -> None:
            if resume:
                for writer in writers:
                    writer.flush()
                done.written, done.counts = [writer.tell() for writer in writers], total
                write_lines(resume, [msgspec.json.encode(done).decode()])

        results = stack.enter_context(contextlib.closing(in_order(of_block, _blocks(readers), processes)))
        saved = time.monotonic()
        for read, lines, outputs, counts in results:
            for writer, output in zip(writers, outputs, strict=True):
                writer.write(output)
            total.update(counts)
            done.lines += lines
            done.read = [before + more for before, more in zip(done.read, read, strict=True)]
            bar.advance(lines)
            if time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
                save()
                saved = time.monotonic()
        save()
    return total


def count_tokens(languages: Iterable[str], columns: Columns) -> Counter[str]:
    """Return the number of ``lines``, and of tokens between single spaces of the column of each language."""
    counts = Counter(lines=len(columns[0]))
    for language, column in zip(languages, columns, strict=True):
        counts[language] += sum(line.count(" ") + 1 for line in column if line)
    return +counts  # without zeros


def _blocks(readers: Sequence[IO[bytes]]) -> Iterator[list[bytes]]:
    """Yield blocks of the lines of several files, a text for each, until the files end."""
    while True:
        blocks = [list(islice(reader, BLOCK)) for reader in readers]
        if len({len(block) for block in blocks}) > 1:
            names = " and ".join(reader.name for reader in readers)
            raise UsageError(f"{names} have different numbers of lines. Remove their folder and run again.")
        if not blocks or not blocks[0]:
            return
        yield [b"".join(block) for block in blocks]


class _Done(msgspec.Struct):
    """Progress of a run: bytes read of each source and written to each target, lines of a source, sum of the counts."""

    read: list[int]
    written: list[int]
    lines: int = 0
    counts: dict[str, int] = {}


def _noted(path: Path | None, sources: Sequence[Path], targets: Sequence[Path]) -> _Done:
    """Return the noted progress; none if there is no note, it is damaged, or a file is shorter than noted."""
    none = _Done([0] * len(sources), [0] * len(targets))
    with contextlib.suppress(UsageError, OSError):
        done = read_json(path, _Done) if path else none
        noted = [*zip(sources, done.read, strict=False), *zip(targets, done.written, strict=False)]
        are_there = all(0 <= offset <= file.stat().st_size for file, offset in noted)
        if done.lines > 0 and are_there and (len(done.read), len(done.written)) == (len(sources), len(targets)):
            return done
    return none
