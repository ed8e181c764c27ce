"""Common behavior of all commands: errors are one sentence, and interrupts end a command without a traceback."""

import contextlib
import functools
import gc
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence

from posnet_fairseq.shared.errors import UsageError, visible
from posnet_fairseq.shared.failures import explain

NO_READER = 141  # the code of a program ended by SIGPIPE

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
        logging.getLogger().setLevel(logging.WARNING)  # fairseq's modules lower it
        _repair_streams(sys.argv[1:] if arguments is None else arguments)
        code = _exit_code(main, arguments)
        if has_a_process and "triton" not in sys.modules:  # from 3.9 on it prints all types that are not searched
            gc.freeze()  # nothing is searched at exit
        if code is not None:
            _discard_unwritten()
            sys.exit(code)

    return run


def _exit_code(main: Main, arguments: Sequence[str] | None) -> int | str | None:
    """Run a command and return its exit code; None if it ended normally and all its output was written."""
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
    except KeyboardInterrupt:
        return 130  # as of a program ended by SIGINT
    except BrokenPipeError:
        return NO_READER
    except Exception as error:
        sentence = explain(error)
        if sentence is None:
            raise
        with contextlib.suppress(OSError):
            print(f"{os.path.basename(sys.argv[0])}: error: {visible(sentence)}", file=sys.stderr)
        return 2


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
