"""Signals of processes that tests start."""

import signal


def default_signals():
    """Let interrupts and ends reach a new process, as its ``preexec_fn``: jobs in the background may ignore them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
