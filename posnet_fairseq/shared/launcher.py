"""Becomes a command that is killed when its parent ends: ``python -I -S launcher.py PARENT COMMAND ...``.

A process of several threads must not run Python between fork and exec (``preexec_fn``): it can deadlock there. This
program does it after exec, imports nothing of posnet, and keeps its process id.
"""

import ctypes
import os
import signal
import sys

DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG

if __name__ == "__main__":
    parent, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != int(parent):  # it has ended before
        sys.exit(1)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # the parent has let it wait
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"error: {command[0]}: {error.strerror}. Is it installed, and on PATH?")
