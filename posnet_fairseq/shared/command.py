"""Common behavior of all commands: errors are one sentence, and interrupts end a command without a traceback."""

import atexit
import contextlib
import functools
import gc
import io
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from posnet_fairseq.shared.errors import UsageError, visible
from posnet_fairseq.shared.failures import explain
from posnet_fairseq.shared.torch_process import limit_product_caches

NO_READER = 141  # the code of a program ended by SIGPIPE
INTERRUPTED = 130  # of one ended by SIGINT
_SOON = 0.01  # seconds until an interrupt is repeated
_LONG = 0.5  # seconds that one waits for the end of an import

# Python's search for garbage cycles goes through the 300,000 objects of torch again and again while torch is imported,
# which takes a third of the time in which a small model is loaded. It waits for this many new ones instead of 700.
_OBJECTS = 300_000

Main = Callable[[Sequence[str] | None], None]


def command(main: Main) -> Callable[..., None]:
    """Decorate the function of a console script: known failures end with a sentence and exit code 2."""

    @functools.wraps(main)
    def run(arguments: Sequence[str] | None = None) -> None:
        has_a_process = arguments is None
        if has_a_process:
            gc.set_threshold(_OBJECTS)
            limit_product_caches()
        logging.getLogger().setLevel(logging.WARNING)  # fairseq's modules lower it
        _repair_streams(sys.argv[1:] if arguments is None else arguments)
        if not os.environ.get("COLUMNS", "").strip("0"):  # in 0 columns nothing would be printed
            os.environ.pop("COLUMNS", None)
        os.environ.pop("MPLBACKEND", None)  # pictures are files; matplotlib fails at a name that it does not know
        with _heeding_interrupts(has_a_process) as interrupts:
            try:
                code = _exit_code(main, arguments, interrupts)
            except KeyboardInterrupt as interrupt:  # also while an error is explained
                vars(interrupt)["is_repeated"] = False
                code = INTERRUPTED
        if has_a_process and "triton" not in sys.modules:  # from 3.9 on it prints all types that are not searched
            gc.freeze()  # nothing is searched at exit
        if code is not None:
            _discard_unwritten()
            sys.exit(code)

    return run


class _Interrupt(KeyboardInterrupt):
    """An interrupt (Ctrl-C) of a command, repeated if it is forgotten before the command has ended.

    An interrupt is an exception in whatever Python does at that moment. Python drops exceptions in what it calls by
    itself, as when an object goes, and libraries may: the command would go on.
    """

    is_repeated = False  # while no command works

    def __del__(self) -> None:
        """Let it come again soon."""
        if self.is_repeated:
            signal.setitimer(signal.ITIMER_REAL, _SOON)


@contextlib.contextmanager
def _heeding_interrupts(has_a_process: bool) -> Iterator[list[float]]:
    """Provide the list of the times at which interrupts come.

    One that comes while a module is imported waits for the end of that: torch drops it there, or aborts.
    """
    came: list[float] = []
    before = sys.unraisablehook, signal.getsignal(signal.SIGALRM)

    def interrupt(_: int, frame: FrameType | None) -> None:
        came.append(time.monotonic())
        if not _is_importing(frame):
            raise _Interrupt
        if came[-1] - came[0] > _LONG:
            os._exit(INTERRUPTED)
        signal.setitimer(signal.ITIMER_REAL, _SOON)

    def show(unraisable: "sys.UnraisableHookArgs") -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before[0](unraisable)

    # Jobs in the background may ignore interrupts, and programs that call a command may have their own way.
    if not has_a_process or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield came
        return
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGALRM, interrupt)
    sys.unraisablehook = show
    _Interrupt.is_repeated = True
    try:
        yield came
    finally:
        _Interrupt.is_repeated = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = before[0]
        signal.signal(signal.SIGALRM, before[1])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)  # nothing is left to be done


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether a module is being imported by what a frame was called for."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def _exit_code(main: Main, arguments: Sequence[str] | None, interrupts: Sequence[float]) -> int | str | None:
    """Run a command and return its exit code; None if it ended normally and all its output was written.

    Of an interrupted command no traceback is shown: some libraries make another error of an interrupt.
    """
    try:
        code: int | str | None = None
        try:
            main(arguments)
        except SystemExit as end:  # such as after --help
            if isinstance(end.__context__, BrokenPipeError):  # rich raises SystemExit instead
                return NO_READER
            code = end.code or 0
        _flush()
        return code
    except BrokenPipeError:
        return NO_READER
    except Exception as error:
        sentence = explain(error)
        if sentence is None and not interrupts:
            raise
        if sentence is None:
            return INTERRUPTED
        with contextlib.suppress(OSError):
            print(f"{os.path.basename(sys.argv[0])}: error: {visible(sentence)}", file=sys.stderr)
        return INTERRUPTED if interrupts else 2


def _flush() -> None:
    """Write what has been printed, or raise a UsageError; BrokenPipeError if it has no reader any more."""
    if sys.stdout is None:  # after ">&-" in a shell
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(
            f"standard output could not be written: {error.strerror}. Redirect it to another place, and run it again."
        ) from error


def _repair_streams(arguments: Sequence[str]) -> None:
    """Replace closed standard streams, and allow any text to be printed on the others."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes this number, which a file opened later would get otherwise
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (else print would write to standard output)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # some names are not UTF-8, some terminals know ASCII only
    if isinstance(sys.stdout, io.TextIOWrapper) and {"-h", "--help"} & set(arguments):
        # With PYTHONUNBUFFERED argparse would write its help at once, and ignore an error.
        sys.stdout.reconfigure(write_through=False)


def _discard_unwritten() -> None:
    """Discard output that cannot be written, which Python would try again at exit and report."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except OSError:
                with contextlib.suppress(OSError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
