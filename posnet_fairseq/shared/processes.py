"""Work on several processes, its results in order."""

import ctypes
import functools
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from posnet_fairseq.shared.errors import UsageError

MOST = 1000  # processes
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def in_order(function, items, processes, start="fork", advice="Run again with fewer --workers; what is done is kept."):
    """Like map, on several processes: results in the order of the items, of which only a few are held at once.

    Args:
        function: of one item; items and results are pickled.
        items: iterable.
        processes: how many; with 1, this one.
        start: ``fork``: what has been imported and built is there at once, and shared. ``spawn``, for functions that
            compute with torch, whose threads and GPUs do not outlive a fork: the function is pickled, too.
        advice: what to do if a process was killed.

    Raises:
        UsageError: a process was killed, by the system if memory is short.
    """
    if processes == 1:
        yield from map(function, items)
        return
    context = multiprocessing.get_context(start)
    numbers = context.SimpleQueue()
    for number in range(processes):
        numbers.put(number)
    with ProcessPoolExecutor(processes, context, initializer=_start, initargs=(function, numbers, os.getpid())) as pool:
        try:
            yield from submitted(pool, _work, items, 3 * processes)
        except BrokenProcessPool as error:
            raise UsageError(f"a process was killed, perhaps because memory is short. {advice}") from error
        except BaseException:
            # An interrupted run ends at once, not when the work in hand is done.
            for worker in list(pool._processes.values()):
                worker.kill()
            raise


def check_workers(count: int) -> None:
    """Refuse numbers of ``--workers`` that no machine can start.

    Raises:
        UsageError: it is less than 1 or more than :data:`MOST`.
    """
    if not 1 <= count <= MOST:
        raise UsageError(f"--workers {count}: give 1 or more, up to {MOST:,}. This machine has {cores()} cores.")


def submitted(pool, function, items, ahead):
    """What a pool makes of items, in their order.

    Args:
        pool: executor of concurrent.futures.
        function: of one item.
        items: iterable.
        ahead: how many are given to the pool beyond the one whose result is waited for.

    Raises:
        Exception: what the function raised, in the place of the result.
    """
    waiting = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def die_with_parent(parent: int) -> None:
    """Let this process be killed when its parent ends, however that happens (Linux).

    Args:
        parent: process id of the parent, which may have ended before this call.
    """
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def ending_with_this() -> Callable[[], None]:
    """A ``preexec_fn`` of :class:`subprocess.Popen`: the process is killed when this one ends."""
    return functools.partial(die_with_parent, os.getpid())


_function, _number = None, 0


def _start(function, numbers, parent):
    global _function, _number
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    die_with_parent(parent)
    _function, _number = function, numbers.get()


def worker_number():
    """Which of the processes this is, from 0 on; 0 where there is but one."""
    return _number


def _work(item):
    return _function(item)


def cores():
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))
