"""posnet-translate --stream: a line out as soon as it is translated."""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from torch import Tensor

from posnet_fairseq.inference.translator import BLANK, Batch, Translation, Translator
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import save_lines
from posnet_fairseq.shared.incoming import IncomingLines
from posnet_fairseq.shared.output_paths import descriptor, resolved

LINES = 32  # most lines of a batch: more would be faster by little, and let the first of them wait for the last


def check_stream(options: argparse.Namespace) -> None:
    """Refuse options that do not go with --stream.

    Raises:
        UsageError: the output is a file, which would be neither complete nor absent; or there are several processes.
    """
    output = options.output
    if output != "-" and not resolved(output, f"--output {output}")[1]:
        raise UsageError(
            f"--output {output}: --stream writes to pipes, line by line. Leave it out, or redirect standard output."
        )
    if options.prefix:
        raise UsageError(f"--prefix {options.prefix}: --stream takes no beginnings. Leave one of the two out.")
    if options.processes > 1:
        raise UsageError(f"--processes {options.processes}: --stream works in one process. Leave one of the two out.")


def as_they_come(
    lines: IncomingLines,
    translator: Translator,
    translate: Callable[[Batch], list[list[Translation]]],
    max_tokens: int,
    on_long: str,
) -> Iterator[list[list[Translation]]]:
    """The translations of lines, some lines at a time, in their order.

    No more lines are translated at once than were waiting, so that no line waits for one that comes later.

    Args:
        lines: to translate.
        translator: encodes them.
        translate: translates a batch.
        max_tokens: source tokens of a batch, padding included.
        on_long: what to do with a line of more tokens than the model takes: see :meth:`Translator.fit`.

    Raises:
        UsageError: a line cannot be translated. The translations of all lines in front of it are yielded first.
    """
    number = 1
    while taken := lines.take(LINES):
        for batch in _batches(taken, number, translator, max_tokens, on_long):
            sources = [source for source in batch if source is not None]
            found = iter(translate(Batch(sources)) if sources else [])
            yield [[BLANK] if source is None else next(found) for source in batch]
        number += len(taken)


def _batches(
    lines: list[str], number: int, translator: Translator, max_tokens: int, on_long: str
) -> Iterator[list[Tensor | None]]:
    """Sources of successive lines; None for a line that is not translated.

    Args:
        lines: which were waiting.
        number: of the first.
    """
    batch: list[Tensor | None] = []
    longest = 0
    for index, line in enumerate(lines):
        source = None
        if not translator.skips(line):
            try:
                fitted, notes = translator.fit([translator.encode(line)], on_long, number + index)
            except UsageError:
                yield batch
                raise
            for note in notes:
                print(f"posnet-translate: {note}", file=sys.stderr)
            source = fitted.get(0)
        length = 0 if source is None else translator.size(source)
        if batch and max(longest, length) * (len(batch) + 1) > max_tokens:
            yield batch
            batch, longest = [], 0
        batch.append(source)
        longest = max(longest, length)
    yield batch


@contextlib.contextmanager
def writer_to(output: str) -> Iterator[Callable[[list[str]], None]]:
    """Provide a function that writes lines to a pipe at once.

    Args:
        output: path of the pipe, ``-`` for standard output.

    Raises:
        UsageError: it cannot be written.
        BrokenPipeError: nobody reads it any more.
    """
    if output == "-":
        yield lambda lines: save_lines("-", lines)
        return
    with _opened(output) as file:

        def write(lines: list[str]) -> None:
            file.writelines(line + "\n" for line in lines)
            file.flush()

        yield write


def _opened(output: str) -> TextIO:
    number = descriptor(Path(output))
    return open(output if number is None else os.dup(number), "w", encoding="utf-8", newline="\n")
