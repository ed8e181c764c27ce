"""A search by several processes, on one machine's cores or GPUs."""

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from posnet_fairseq.inference.options import LoadOptions
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.inference.searchable import SearchableModel
from posnet_fairseq.inference.translation import Translation
from posnet_fairseq.inference.translator import Batch, Batches, Translator
from posnet_fairseq.shared.processes import in_order, worker_number
from posnet_fairseq.shared.progress import Bar

MOST = 16  # processes by default: each one needs memory for its batch

Window = TypeVar("Window")
Found = list[list[Translation]]  # for each source of a batch, best first
_Timed = tuple[Found, float, float]  # with the times at which the search began and ended


@dataclass
class ParallelSearch:
    """Search by `processes`, in the order of the windows.

    Attributes:
        find: is called by each process, by this one if there is 1.
        start: of processes, as in :func:`posnet_fairseq.shared.processes.in_order`.
        seconds: those of all searches of one process, or from the first to the last one of several.
    """

    find: Callable[[Batch], _Timed]
    processes: int
    start: str
    seconds: float = 0.0

    def __call__(self, windows: Iterator[tuple[Window, Batches]], bar: Bar) -> Iterator[tuple[Window, Found]]:
        """Yield windows and their translations; processes do not wait for the end of one."""
        drawn, done = deque[tuple[Window, Batches]](), list[Found]()

        def batches() -> Iterator[Batch]:
            for window, of_window in windows:
                drawn.append((window, of_window))
                yield from of_window or [Batch([])]

        first, last, advice = math.inf, -math.inf, "Run again with fewer --processes."
        for found, begin, end in in_order(self.find, batches(), self.processes, self.start, advice):
            first, last = min(first, begin), max(last, end)
            self.seconds = self.seconds + end - begin if self.processes == 1 else last - first
            done.append(found)
            bar.advance(len(found))
            window, of_window = drawn[0]
            if len(done) >= len(of_window):
                drawn.popleft()
                yield window, of_window.in_order(done[: len(of_window)])
                done.clear()


def processes_and_threads(given: int | None, path: str, batches: int) -> tuple[int, int]:
    """Return the number of processes that translate a text, and the number of threads of each.

    By default a file has processes with one thread each: threads that share a batch wait for each other at every
    operation. A pipe is read no earlier than its lines are needed, by one process.

    Args:
        given: number of processes; None for the default on a CPU.
        path: of the text; ``-`` is standard input.
        batches: number of batches of the first window.
    """
    threads = torch.get_num_threads()
    if given is not None:
        return given, threads if "OMP_NUM_THREADS" in os.environ else max(1, threads // given)
    is_file = os.path.isfile(0 if path == "-" else path)
    processes = max(1, min(threads, batches, MOST)) if is_file else 1
    return processes, threads if processes == 1 else 1


def timed_search(translator: Translator, threads: int | None, batch: Batch) -> _Timed:
    """Return translations without their weights, and when the search began and ended.

    With a number of `threads`, it is called in a fork of the process, which shares the models' memory.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    begin = time.perf_counter()
    # Weights would reach another process as open files.
    found = [[replace(each, attention=None) for each in several] for several in translator.translate(batch)]
    return found, begin, time.perf_counter()


@dataclass
class SearchOnGPU:
    """Search by one of several processes, each on a GPU of its own, which load the models when they get a batch."""

    kind: type[SearchableModel]
    paths: Sequence[str]
    load: LoadOptions
    arguments: tuple[SearchSettings, int, bool, bool, str | None]  # of the translator
    threads: int
    translator: Translator | None = None

    def __call__(self, batch: Batch) -> _Timed:
        """As :func:`timed_search`."""
        if self.translator is None and batch.sources:
            torch.set_num_threads(self.threads)
            model = self.kind(self.paths, replace(self.load, device=f"cuda:{worker_number()}"))
            self.translator = model.translator(*self.arguments)
        now = time.perf_counter()
        return timed_search(self.translator, None, batch) if self.translator else ([], now, now)
