"""Progress of long work: a bar with a rate for each stage, and a line when the stage is done."""

import contextlib
import math
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

from rich.console import Console
from rich.measure import measure_renderables
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TaskID, TextColumn
from rich.table import Table

from posnet_fairseq.shared.errors import visible

SHORT = 0.1  # seconds; shorter stages get no line
BETWEEN = 10_000  # rows between two changes of a bar

_UNDECODED = re.compile("[\udc80-\udcff]+")  # bytes, as Python keeps them in paths

_Row = TypeVar("_Row")


def console(quiet: bool = False) -> Console:
    """Return the console of standard error, a terminal if it is one: logs get no bars, whatever FORCE_COLOR says."""
    # file: kept while the messages of a library are redirected
    return plain_console(file=sys.stderr, force_terminal=sys.stderr.isatty(), soft_wrap=True, quiet=quiet)


def plain_console(**settings: Any) -> Console:
    """Return a console, by default of standard output, that prints text as it is.

    Names, paths and sentences may have what rich takes for markup and emoji, as ``[b]`` and ``:car:``.
    """
    return Console(highlight=False, markup=False, emoji=False, **settings)


def plain_table(**settings: Any) -> Table:
    """Return a table without lines, whose columns begin below their underlined names."""
    return Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold underline", **settings)


def print_table(table: Table, out: Console) -> None:
    """Print a table, over the edge of the console if it is wider: fitted into it, it would lose digits."""
    options = out.options.update(max_width=10**6)
    for column in table.columns:
        if column.no_wrap:
            column.min_width = measure_renderables(out, options, [column.header, *column.cells]).maximum
    out.width = max(out.width, out.measure(table, options=options).minimum)
    out.print(table)


class ProgressReporter:
    """Progress on standard error: bars on a terminal, one line per stage elsewhere; if `quiet`, nothing."""

    def __init__(self, quiet: bool = False) -> None:
        self._console = console(quiet)
        self._width = 16

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(visible(shown(text)))

    @contextlib.contextmanager
    def stage(self, name: str, unit: str = "lines", total: float | None = None) -> Iterator["Bar"]:
        """Provide the bar of a stage, and print a line when the stage ends.

        `unit` is ``bytes`` or a plural such as ``lines``; `total` is the number of units, None if unknown.
        """
        with self.bar(name, unit, total) as bar:
            yield bar
        if bar.seconds > SHORT:
            rate = f", {amount(bar.done, unit)}, {amount(bar.mean_rate, unit)}/s" if bar.done else ""
            self.say(f"{name.ljust(self._width)} {bar.seconds:,.1f} s{rate}")

    @contextlib.contextmanager
    def bar(self, name: str, unit: str = "lines", total: float | None = None) -> Iterator["Bar"]:
        """Provide a bar with a rate and the time left. Arguments as for :meth:`stage`."""
        columns: list[ProgressColumn] = [
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[done]}"),
        ]
        # Results that go to a file or a pipe meanwhile are left alone.
        redirect, disable = sys.stdout is not None and sys.stdout.isatty(), not self._console.is_terminal
        progress = Progress(*columns, console=self._console, transient=True, redirect_stdout=redirect, disable=disable)
        with progress:
            yield Bar(progress, progress.add_task(name.ljust(self._width), total=total, done=""), unit, total)


class Bar:
    """State of a stage. `done`: units done in this run and, of a resumed stage, in earlier ones."""

    def __init__(self, progress: Progress, task: TaskID, unit: str, total: float | None) -> None:
        self._progress, self._task, self._unit, self._total = progress, task, unit, total
        self._start = time.perf_counter()
        self.done: float = 0
        self._before: float = 0
        self._earlier = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the stage began, and, where they are known, of earlier runs."""
        return self._earlier + time.perf_counter() - self._start

    @property
    def rate(self) -> float:
        """Units per second, of those done in this run."""
        return (self.done - self._before) / max(self.seconds - self._earlier, 1e-9)

    @property
    def mean_rate(self) -> float:
        """Units per second, of those done in :attr:`seconds`."""
        return (self.done - (0 if self._earlier else self._before)) / max(self.seconds, 1e-9)

    @property
    def time_left(self) -> str:
        """The time left at this rate, for display: ``1:02:03 left``; "" if it is unknown, or none."""
        left = (self._total or 0) - self.done
        return f"{timedelta(seconds=math.ceil(left / self.rate))} left" if left > 0 and self.rate > 0 else ""

    def go_on_from(self, done: float, seconds: float = 0.0) -> None:
        """Set the number of units that earlier runs have done, and the seconds that they took, 0 if unknown."""
        self.done = self._before = done
        self._earlier = seconds
        self._progress.update(self._task, completed=done, done=amount(done, self._unit) if done else "")

    def over(self, rows: Iterable[_Row]) -> Iterator[_Row]:
        """Yield rows, each of which is a unit done."""
        number = 0
        for number, row in enumerate(rows, start=1):
            yield row
            if number % BETWEEN == 0:
                self.move_to(number)
        self.move_to(number)

    def advance(self, count: float) -> None:
        """Add units done since the last call."""
        self.move_to(self.done + count)

    def move_to(self, done: float) -> None:
        """Set the number of units done."""
        self.done = done
        text = f"{amount(done, self._unit)}, {amount(self.rate, self._unit)}/s"
        left = f", {self.time_left}" if self.time_left else ""
        self._progress.update(self._task, completed=done, done=text + left)


def shown(path: str | os.PathLike[str]) -> str:
    r"""Return a path, or a text that contains one, in a printable form: bytes that are no text are written as ``\xe9``.

    A path of a command line has characters by the user's locale, and half surrogate pairs for what that does not know.
    Where that is UTF-8 after all, as in the locale C, it becomes text.
    """
    text = _UNDECODED.sub(
        lambda match: match[0].encode(errors="surrogateescape").decode(errors="backslashreplace"), os.fspath(path)
    )
    return text.encode(errors="backslashreplace").decode()


def amount(number: float, unit: str) -> str:
    """Return a number with its unit for display: ``1,234 lines``, ``5.6 MB``."""
    if unit != "bytes":
        text = f"{number:,.1f}" if 0 < number < 10 and number % 1 else f"{number:,.0f}"
        return f"{text} {unit.removesuffix('s') if text == '1' else unit}"
    return f"{number / 1e9:,.2f} GB" if number >= 1e8 else f"{number / 1e6:,.1f} MB"
