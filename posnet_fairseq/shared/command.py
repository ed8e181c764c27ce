"""What all commands do alike: show mistakes as one sentence, and stop quietly."""

import contextlib
import functools
import io
import logging
import os
import sys

from posnet_fairseq.shared.errors import UsageError, visible
from posnet_fairseq.shared.failures import explain

INTERRUPTED = 130
NO_READER = 141  # as a program that SIGPIPE ends


def command(main):
    """Decorator for a console script's function: known failures end with a sentence and exit code 2."""

    @functools.wraps(main)
    def run(arguments=None):
        logging.getLogger().setLevel(logging.WARNING)  # fairseq's modules have set it to all there is
        _mend_streams(sys.argv[1:] if arguments is None else arguments)
        code = _code(main, arguments)
        if code is not None:
            _drop_what_cannot_be_written()
            sys.exit(code)

    return run


def _code(main, arguments):
    """The exit code of a command, None if it came to its end and all that it printed has been written."""
    try:
        code = None
        try:
            main(arguments)
        except SystemExit as end:  # as of --help
            if isinstance(end.__context__, BrokenPipeError):  # rich makes that of it
                return NO_READER
            code = end.code or 0
        _flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return NO_READER
    except Exception as error:
        sentence = explain(error)
        if sentence is None:
            raise
        with contextlib.suppress(OSError):
            print(f"{os.path.basename(sys.argv[0])}: error: {visible(sentence)}", file=sys.stderr)
        return 2


def _flush():
    if sys.stdout is None:  # as with ">&-"
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(
            f"standard output could not be written: {error.strerror}. Redirect it to another place, and run it again."
        ) from error


def _mend_streams(arguments):
    """Make standard streams that are closed harmless, and let any text be printed on the others."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets this number, which else some file would get
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (else print would write to standard output)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # some names are not UTF-8, some terminals know ASCII only
    if isinstance(sys.stdout, io.TextIOWrapper) and {"-h", "--help"} & set(arguments):
        # With PYTHONUNBUFFERED argparse would write its help at once, and not mind that it is lost.
        sys.stdout.reconfigure(write_through=False)


def _drop_what_cannot_be_written():
    """Keep Python from trying it again at exit, and from complaining then."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except OSError:
                with contextlib.suppress(OSError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
