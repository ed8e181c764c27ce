"""Work on several processes, with results in order."""

import contextlib
import ctypes
import fcntl
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from multiprocessing import resource_tracker, util
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

from posnet_fairseq.shared import launcher
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.torch_process import end_threads
from posnet_fairseq.shared.user_dir import UserDirs

FEWER_WORKERS = "Run again with fewer --workers; what is done is kept."

Item = TypeVar("Item")
Result = TypeVar("Result")


def repaired(command: Sequence[str]) -> list[str]:
    """Return a command, one of fairseq's in the form that runs on any machine: see ``optional_types.py``."""
    if not command[0].startswith("fairseq-") or (sys.version_info < (3, 14) and has_semaphores()):
        return list(command)
    return [sys.executable, "-P", str(Path(__file__).parents[1] / "fairseq_plugin/optional_types.py"), *command]


def has_semaphores() -> bool:
    """Return whether processes can share locks: some containers have no /dev/shm that can be written."""
    try:
        multiprocessing.get_context("fork").Lock()
    except OSError:
        return False
    return True


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
        start: ``fork`` shares imported modules and existing objects, also models: torch's threads are ended before.
            ``spawn``, for functions that compute on GPUs, pickles the function.
        advice: what to do if a process was killed.

    Raises:
        UsageError: a process was killed, by the system if memory is short.
    """
    if processes == 1:
        yield from map(function, items)
        return
    with _workers(function, processes, start, advice, daemon=True) as workers:
        for answer in _answers(workers, items, 3 * processes):
            yield answer.get()


def elsewhere(function: Callable[[Item], Result], item: Item) -> Result:
    """Return function(item), computed by a new process: what it imports takes no memory of this one."""
    with _workers(function, 1, "spawn", "Close other programs and run again.", daemon=False) as workers:
        (answer,) = _answers(workers, [item], 1)
    return answer.get()  # raises here: a process that is killed leaves the locks of fairseq's modules


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait in this thread. Processes that it starts meanwhile never get it."""
    waiting: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    # Other threads, such as torch's, do not block it, and Python then calls the main thread's function for it.
    handler = signal.signal(signal.SIGINT, lambda number, _: waiting.append(number)) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if waiting:
            signal.raise_signal(signal.SIGINT)


@dataclass(frozen=True)
class _Answer:
    """A result of a process, or the error instead."""

    result: Any = None
    error: BaseException | None = None

    def get(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


class _Worker:
    """A process that computes a function of items, one after the other.

    Two pipes lead to it and back, without threads, locks and semaphores: it can be killed at any moment, and needs no
    /dev/shm.
    """

    def __init__(self) -> None:
        self.items = deque[int]()  # numbers of items that were sent and not answered yet
        self._process: Any = None

    def start(self, context: Any, function: Callable[[Any], Any], number: int, daemon: bool) -> None:
        """Start the process. No other one gets its ends of the pipes: else its death would not be noticed."""
        calls, self._calls = context.Pipe(duplex=False)
        self.answers, answers = context.Pipe(duplex=False)
        self._room = fcntl.fcntl(self._calls, fcntl.F_GETPIPE_SZ) // 2  # bytes that wait in the pipe for certain
        arguments = UserDirs(), function, number, os.getpid(), calls, answers
        self._process = context.Process(target=_serve, args=arguments, daemon=daemon)
        self._process.start()
        calls.close()
        answers.close()

    def takes(self, item: bytes) -> bool:
        """Return whether an item can be sent without waiting for an answer, which would wait for this process."""
        return not self.items or (len(self.items) == 1 and len(item) <= self._room)

    def send(self, number: int, item: bytes) -> None:
        """Send a pickled item."""
        self._calls.send_bytes(item)
        self.items.append(number)

    def receive(self) -> tuple[int, _Answer]:
        """Return the next answer, which is waited for, with the number of its item."""
        answer: _Answer = pickle.loads(self.answers.recv_bytes())
        return self.items.popleft(), answer

    def end(self) -> None:
        """Let the process end, which has answered."""
        with contextlib.suppress(OSError):  # it has ended
            self._calls.send_bytes(b"")
        self._process.join()

    def kill(self) -> None:
        """End the process at once, if it was started."""
        if self._process is not None and self._process.pid is not None:
            self._process.kill()
            self._process.join()


@contextlib.contextmanager
def _workers(
    function: Callable[[Any], Any], processes: int, start: str, advice: str, daemon: bool
) -> Iterator[list[_Worker]]:
    """Provide processes, which are killed when anything is raised while they are used.

    An interrupted run ends at once instead of finishing the items in progress. A `daemon` ends with this process in
    any case, and starts no processes with multiprocessing.
    """
    context = multiprocessing.get_context(start)
    if start == "fork":
        end_threads()
    else:
        resource_tracker.ensure_running()  # a process of Python, which lets Ctrl-C through when it starts
    workers = [_Worker() for _ in range(processes)]
    try:
        with _without_interrupts():
            for number, worker in enumerate(workers):
                worker.start(context, function, number, daemon)
        yield workers
        for worker in workers:
            worker.end()
    except BaseException as error:
        with _without_interrupts():
            for worker in workers:
                worker.kill()
        if isinstance(error, _Gone):
            raise UsageError(f"a process was killed, perhaps because memory is short. {advice}") from error
        raise


class _Gone(Exception):
    """A process has ended before it has answered."""


def _answers(workers: Sequence[_Worker], items: Iterable[Any], ahead: int) -> Iterator[_Answer]:
    """Yield an answer for each item, in the order of the items, of which at most `ahead` are held.

    If there is an error instead of an item, it comes after the answers to the items before it.
    """
    iterator, found = iter(items), dict[int, _Answer]()
    sent = yielded = 0
    item: bytes | None = None  # the next one
    last: _Answer | None = None
    has_items = True
    while True:
        _receive(workers, found, seconds=0)
        worker = min(workers, key=lambda each: len(each.items))
        if item is not None and worker.takes(item):
            with _noticing_ends():
                worker.send(sent, item)
            sent, item = sent + 1, None
        elif yielded in found:
            yield found.pop(yielded)
            yielded += 1
        elif has_items and item is None and sent - yielded < ahead:
            try:
                item = pickle.dumps(next(iterator))
            except StopIteration:
                has_items = False
            except Exception as error:
                has_items, last = False, _Answer(error=error)
        elif sent > yielded:
            _receive(workers, found, seconds=None)
        else:
            break
    if last is not None:
        yield last


def _receive(workers: Sequence[_Worker], found: dict[int, _Answer], seconds: float | None) -> None:
    """Take the answers that are there, or come in some seconds at most; None: one is waited for."""
    busy = {worker.answers: worker for worker in workers if worker.items}
    with _noticing_ends():
        for each in wait(list(busy), seconds) if busy else ():
            number, answer = busy[each].receive()
            found[number] = answer


@contextlib.contextmanager
def _noticing_ends() -> Iterator[None]:
    """Turn the end of a pipe into an error about the process behind it."""
    try:
        yield
    except (EOFError, OSError) as error:
        raise _Gone from error


def submitted(
    pool: Executor, function: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """Yield function(item) for each item, in the order of the items, computed by a pool of threads.

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
    ctypes.CDLL(None).prctl(launcher.DIE_WITH_PARENT, signal.SIGKILL)
    end_orphan(parent)


def end_orphan(parent: int, *_: object) -> None:
    """End this process if its parent, given by its id, has ended."""
    if os.getppid() != parent:
        os._exit(1)


def start(command: Sequence[str], environment: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen:
    """Start a command with more variables of its environment. It is killed when this thread or process ends.

    `options` are those of :class:`subprocess.Popen`.
    """
    launched = [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid()), *command]
    with _without_interrupts():  # the launcher lets them through when it is the command
        return subprocess.Popen(launched, env=os.environ | (environment or {}), **options)


def run_attached(command: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Run a command that speaks for itself and ends with this process, and return its exit code.

    Of posnet's own commands, one started with ``--quiet`` starts others with it.
    """
    quiet = command[0].startswith("posnet-") and getattr(sys.stderr, "name", "") == os.devnull
    with start([*command, *["--quiet"] * quiet], environment) as process:
        try:
            return process.wait()
        except BaseException:
            process.kill()
            raise


_number = 0  # of this worker


def _serve(
    _: object, function: Callable[[Any], Any], number: int, parent: int, calls: Connection, answers: Connection
) -> None:
    """Answer all calls, in a process of its own."""
    global _number
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    die_with_parent(parent)
    # Processes that a worker starts with multiprocessing are killed when it ends, and so on.
    util.register_after_fork(_serve, lambda _: die_with_parent(multiprocessing.parent_process().pid))  # type: ignore
    _number = number
    while item := calls.recv_bytes():
        answers.send_bytes(_answer(function, item))


def _answer(function: Callable[[Any], Any], item: bytes) -> bytes:
    """Return a pickled :class:`_Answer`."""
    try:
        return pickle.dumps(_Answer(function(pickle.loads(item))))
    except BaseException as error:
        where = "".join(traceback.format_exception(error))
        with contextlib.suppress(Exception):  # some errors are not pickled, others not read again
            error.add_note(f"In process {os.getpid()}:\n{where}")
            answer = pickle.dumps(_Answer(error=error))
            pickle.loads(answer)
            return answer
        return pickle.dumps(_Answer(error=RuntimeError(where)))


def worker_number() -> int:
    """Return the number of this process among those of :func:`in_order`, counted from 0; 0 in the parent."""
    return _number


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
