"""Work on several processes, with results in order."""

import contextlib
import ctypes
import fcntl
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import util
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, TypeVar

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.user_dir import UserDirs

FEWER_WORKERS = "Run again with fewer --workers; what is done is kept."
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG

Item = TypeVar("Item")
Result = TypeVar("Result")


def repaired(command: Sequence[str]) -> list[str]:
    """Return a command, one of fairseq's in the form that runs on Python 3.14: see ``optional_types.py``."""
    if sys.version_info < (3, 14) or not command[0].startswith("fairseq-"):
        return list(command)
    return [sys.executable, "-P", str(Path(__file__).parents[1] / "fairseq_plugin/optional_types.py"), *command]


def in_order(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    processes: int,
    start: str = "fork",
    advice: str = FEWER_WORKERS,
) -> Generator[Result, None, None]:
    """Yield function(item) for each item, in the order of the items, computed by several processes.

    Only a few items are held at a time. Items and results are pickled; 1 process computes in this one.

    Args:
        start: ``fork`` shares imported modules and existing objects, also models, since ``inference/searchable.py``
            ends torch's threads before a fork. ``spawn``, for functions that compute on GPUs, pickles the function.
        advice: what to do if a process was killed.

    Raises:
        UsageError: a process was killed, by the system if memory is short.
    """
    if processes == 1:
        yield from map(function, items)
        return
    with _pool(function, processes, start, advice) as pool:
        yield from submitted(pool, _work, items, 3 * processes)


def elsewhere(function: Callable[[Item], Result], item: Item) -> Result:
    """Return function(item), computed by a new process: what it imports takes no memory of this one."""
    with _pool(function, 1, "spawn", "Close other programs and run again.") as pool:
        future = pool.submit(_work, item)
        if isinstance(future.exception(), BrokenProcessPool):
            future.result()
    return future.result()  # raises here: a process that is killed leaves the locks of fairseq's modules


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait in this thread. Processes that it starts meanwhile never get it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Pool(ProcessPoolExecutor):
    """Starts processes that leave Ctrl-C to this one, also in the seconds that they take to begin."""

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        with _without_interrupts():
            return super().submit(*args, **kwargs)


@contextlib.contextmanager
def _pool(function: Callable[[Any], Any], processes: int, start: str, advice: str) -> Iterator[ProcessPoolExecutor]:
    """Provide processes for :func:`_work`, which are killed when anything is raised while they are used."""
    context: Any = multiprocessing.get_context(start)
    numbers = context.SimpleQueue()
    for number in range(processes):
        numbers.put(number)
    initargs = UserDirs(), function, numbers, os.getpid()
    with _Pool(processes, context, initializer=_start, initargs=initargs) as pool:
        try:
            yield pool
        except BrokenProcessPool as error:
            raise UsageError(f"a process was killed, perhaps because memory is short. {advice}") from error
        except BaseException:
            # An interrupted run ends at once instead of finishing the items in progress.
            with _without_interrupts():
                for worker in list(pool._processes.values()):
                    worker.kill()
            raise


def submitted(
    pool: Executor, function: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """Yield function(item) for each item, in the order of the items, computed by a pool of threads or processes.

    The pool is given `ahead` items beyond the one whose result is awaited. If there is an error instead of an item, it
    is raised after the results of the items before it.
    """
    waiting: deque[Future[Result]] = deque()
    error = None
    iterator = iter(items)
    while error is None:
        try:
            waiting.append(pool.submit(function, next(iterator)))
        except StopIteration:
            break
        except Exception as raised:
            error = raised
        while len(waiting) > ahead or (waiting and waiting[0].done()):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
    if error is not None:
        raise error


def die_with_parent(parent: int) -> None:
    """Have this process killed when its parent, given by its id, ends or has ended for whatever reason (Linux)."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    end_orphan(parent)


def end_orphan(parent: int, *_: object) -> None:
    """End this process if its parent, given by its id, has ended."""
    if os.getppid() != parent:
        os._exit(1)


def ending_with_this() -> Callable[[], None]:
    """Return a ``preexec_fn`` for :class:`subprocess.Popen`: the new process is killed when this one ends."""
    return functools.partial(die_with_parent, os.getpid())


def run_attached(command: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Run a command that speaks for itself and ends with this process, and return its exit code.

    Of posnet's own commands, one started with ``--quiet`` starts others with it.
    """
    quiet = command[0].startswith("posnet-") and getattr(sys.stderr, "name", "") == os.devnull
    whole = [*command, *["--quiet"] * quiet]
    return subprocess.run(whole, env=os.environ | (environment or {}), preexec_fn=ending_with_this()).returncode


_function: Callable[[Any], Any] | None = None  # of this worker
_number = 0


def _start(_: object, function: Callable[[Any], Any], numbers: "SimpleQueue[int]", parent: int) -> None:
    global _function, _number
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    die_with_parent(parent)
    # Processes that a worker starts with multiprocessing are killed when it ends, and so on.
    util.register_after_fork(_start, lambda _: die_with_parent(multiprocessing.parent_process().pid))  # type: ignore
    _function, _number = function, numbers.get()


def worker_number() -> int:
    """Return the number of this process among those of :func:`in_order`, counted from 0; 0 in the parent."""
    return _number


def _work(item: Any) -> Any:
    assert _function is not None
    return _function(item)


def try_lock(descriptor: int) -> bool:
    """Lock an open file, until it is closed, unless another process has; without an effect where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some file systems have none
        pass
    return True


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


_least, _since = 0, time.monotonic()  # bytes that this process held when free memory was last given back, and when


def give_memory_back() -> None:
    """Give the system what C's allocator keeps between blocks in use, once it is a quarter of the rest.

    Once a second at most: to get it again takes time.
    """
    global _least, _since
    with contextlib.suppress(OSError, AttributeError):  # /proc, and glibc's malloc, may be missing
        if time.monotonic() - _since > 1 and resident() > 1.25 * _least:
            ctypes.CDLL(None).malloc_trim(0)
            _least, _since = resident(), time.monotonic()


def resident(name: str = "VmRSS") -> int:
    """Return the bytes that this process holds in memory, or with ``VmHWM`` those that it held at most (Linux)."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024
