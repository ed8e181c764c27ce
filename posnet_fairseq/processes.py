"""Work on several processes, its results in order."""

import ctypes
import multiprocessing
import os
import signal
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from posnet_fairseq.errors import UsageError

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def in_order(function, items, processes):
    """Like map, on several processes: results in the order of the items, of which only a few are held at once.

    Args:
        function: of one item; processes inherit it, items and results are pickled.
        items: iterable.
        processes: how many; with 1, this one.

    Raises:
        UsageError: a process was killed, by the system if memory is short.
    """
    if processes == 1:
        yield from map(function, items)
        return
    # fork: what has been imported and built is there at once, and shared.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, context, initializer=_start, initargs=(function,)) as pool:
        waiting = deque()
        try:
            for item in items:
                waiting.append(pool.submit(_work, item))
                if len(waiting) > 3 * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise UsageError(
                "a process was killed, perhaps because memory is short. Run again with fewer --workers; what is done "
                "is kept."
            ) from error
        except BaseException:
            # An interrupted run ends at once, not when the work in hand is done.
            for worker in list(pool._processes.values()):
                worker.kill()
            raise


def die_with_parent():
    """Let this process be killed when its parent ends, however that happens (Linux)."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _start(function):
    global _function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    die_with_parent()
    _function = function


def _work(item):
    return _function(item)


def cores():
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))
