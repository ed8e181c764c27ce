"""What a person watches while something long is done: a bar with a rate for each stage, and a line when it is done."""

import contextlib
import os
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from posnet_fairseq.shared.errors import visible

SHORT = 0.1  # seconds; a stage of less is not worth a line


class Report:
    """Progress on standard error: bars on a terminal, else a line a stage.

    Args:
        quiet: print nothing.
    """

    def __init__(self, quiet: bool = False):
        # file: it stays the same one when a library's messages are caught
        self._console = Console(file=sys.stderr, highlight=False, soft_wrap=True, quiet=quiet)
        self._width = 16

    def say(self, text):
        """Print a line."""
        self._console.print(visible(shown(text)), markup=False)

    @contextlib.contextmanager
    def stage(self, name, unit="lines", total=None):
        """A stage's bar.

        Args:
            name: of the stage.
            unit: of what is counted.
            total: how much of it there is, if that is known.

        Yields:
            :class:`Bar`.
        """
        columns = [
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[done]}"),
        ]
        columns += [TimeRemainingColumn()]
        progress = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        with progress:
            bar = Bar(progress, progress.add_task(name.ljust(self._width), total=total, done=""), unit)
            yield bar
        if bar.seconds > SHORT:
            rate = f", {amount(bar.done, unit)}, {amount(bar.rate, unit)}/s" if bar.done else ""
            self.say(f"{name.ljust(self._width)} {bar.seconds:,.1f} s{rate}")


class Bar:
    """How far a stage is.

    Attributes:
        done: units done in this run and, of a stage that goes on, before it.
    """

    def __init__(self, progress, task, unit):
        self._progress, self._task, self._unit = progress, task, unit
        self._start = time.perf_counter()
        self.done = self._before = 0

    @property
    def seconds(self):
        """Since it began."""
        return time.perf_counter() - self._start

    @property
    def rate(self):
        """Units a second, of those done in this run."""
        return (self.done - self._before) / max(self.seconds, 1e-9)

    def go_on_from(self, done):
        """Count what an earlier run has done."""
        self.done = self._before = done

    def advance(self, count):
        """Count what has been done since the last call."""
        self.move_to(self.done + count)

    def move_to(self, done):
        """Say how much is done."""
        self.done = done
        text = f"{amount(done, self._unit)}, {amount(self.rate, self._unit)}/s"
        self._progress.update(self._task, completed=done, done=text)


def shown(path):
    """A path, or a text with one, as it can be printed: bytes of it that are not UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", errors="replace")


def amount(number, unit):
    """So many of a unit, for people to read."""
    if unit != "bytes":
        return f"{number:,.1f} {unit}" if 0 < number < 10 and number % 1 else f"{number:,.0f} {unit}"
    return f"{number / 1e9:,.2f} GB" if number >= 1e8 else f"{number / 1e6:,.1f} MB"
