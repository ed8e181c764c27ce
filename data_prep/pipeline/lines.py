"""Functions over the lines of large files: on all cores, in bounded memory, in order, and resumable."""

import contextlib
import json
import time
from collections import Counter
from itertools import islice

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.processes import in_order
from posnet_fairseq.shared.records import read_json

BLOCK = 2000  # lines that a process is given at once
SECONDS_BETWEEN_SAVES = 5.0


def map_lines(function, sources, targets, processes, bar, resume=None):
    """Make files from files, line by line. The bytes that come out do not depend on the number of processes.

    Args:
        function: from a list of tuples of lines, one of each source, to a list of lists of lines, one for each target,
            and a Counter. It need not be picklable: processes inherit it.
        sources: UTF-8 files of equally many lines.
        targets: files to make.
        processes: how many work at once; with 1, this one does.
        bar: :class:`posnet_fairseq.shared.progress.Bar`, which counts lines of a source.
        resume: file that remembers how far it got, to go on after an interruption; None: from the beginning.

    Returns:
        The sum of the Counters, in the order of the lines.

    Raises:
        UsageError: a process was killed, or the sources have different numbers of lines.
    """
    done = _Done.load(resume, sources, targets)
    bar.go_on_from(done.lines)
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(open(path, "rb")) for path in sources]
        writers = [stack.enter_context(open(path, "r+b" if done.lines else "wb")) for path in targets]
        for reader, offset in zip(readers, done.read, strict=True):
            reader.seek(offset)
        for writer, size in zip(writers, done.written, strict=True):
            writer.truncate(size)  # what an interrupted run wrote behind its last note
            writer.seek(size)
        results = stack.enter_context(contextlib.closing(in_order(_Block(function), _blocks(readers), processes)))
        saved = time.monotonic()
        for read, lines, (outputs, counts) in results:
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
    return done.counts


class _Block:
    """What a process does with a block: the function, between bytes and lines."""

    def __init__(self, function):
        self._function = function

    def __call__(self, block):
        texts, read, lines = block
        columns = [text.decode("utf-8").split("\n")[:-1] for text in texts]
        results, counts = self._function(list(zip(*columns, strict=True)))
        return read, lines, (["".join(f"{line}\n" for line in column).encode() for column in results], counts)


def _blocks(readers):
    """(texts of the next lines of each file, their bytes, the number of lines), until the files end."""
    while True:
        blocks = [list(islice(reader, BLOCK)) for reader in readers]
        if len({len(block) for block in blocks}) > 1:
            names = " and ".join(reader.name for reader in readers)
            raise UsageError(f"{names} have different numbers of lines. Remove their folder and run again.")
        if not blocks or not blocks[0]:
            return
        texts = [b"".join(block) for block in blocks]
        yield texts, [len(text) for text in texts], len(blocks[0])


class _Done:
    """How far a run got: bytes read and written of each file, lines, counts."""

    def __init__(self, read, written, lines=0, counts=()):
        self.read, self.written, self.lines, self.counts = read, written, lines, Counter(counts)

    @classmethod
    def load(cls, path, sources, targets):
        """As a note says; from the beginning where there is none, or a damaged one, or where files are shorter now."""
        with contextlib.suppress(AttributeError, TypeError):  # of notes of another kind
            done = cls(**read_json(path)) if path else None
            if done and done.lines > 0 and _reach(sources, done.read) and _reach(targets, done.written):
                return done
        return cls([0] * len(sources), [0] * len(targets))

    def add(self, lines, read, outputs, counts):
        self.lines += lines
        self.read = [done + more for done, more in zip(self.read, read, strict=True)]
        self.written = [done + len(output) for done, output in zip(self.written, outputs, strict=True)]
        self.counts.update(counts)

    def save(self, path):
        write_lines(path, [json.dumps(vars(self))])


def _reach(paths, offsets):
    """Whether files have as many bytes as a note says."""
    return len(paths) == len(offsets) and all(
        path.is_file() and 0 <= offset <= path.stat().st_size for path, offset in zip(paths, offsets, strict=True)
    )
