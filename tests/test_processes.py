import os
import signal
import subprocess
import sys
import time

import pytest

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.processes import apart
from support.signals import default_signals

CODE = """
import os, time
from posnet_fairseq.shared.processes import in_order

def work(item):
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(0.3)

list(in_order(work, iter(int, 1), 2))
"""


def test_an_interrupt_ends_at_once():
    """Also a second one, sent to all processes as a terminal does."""
    code = CODE.replace("time.sleep(0.3)", "time.sleep(60)")
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "start_new_session": True}
    options["preexec_fn"] = default_signals
    with subprocess.Popen([sys.executable, "-c", code], **options) as parent:
        workers = {int(parent.stdout.readline()) for _ in range(2)}
        for _ in range(2):
            os.killpg(parent.pid, signal.SIGINT)
            time.sleep(0.15)
        parent.wait(timeout=20)
    assert not any(os.path.exists(f"/proc/{worker}") for worker in workers)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_its_parent(how):
    options = {"stdout": subprocess.PIPE, "text": True, "preexec_fn": default_signals}
    with subprocess.Popen([sys.executable, "-c", CODE], **options) as parent:
        workers = {int(parent.stdout.readline()) for _ in range(6)}
        assert len(workers) == 2
        parent.send_signal(how)
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{worker}") for worker in workers):
        assert time.monotonic() < deadline, "a worker lives on"
        time.sleep(0.05)


APART = """
import multiprocessing, os, time
from posnet_fairseq.shared.processes import apart

def work(item):
    with multiprocessing.Pool(2) as pool:  # as fairseq-preprocess has
        pool.map(wait, range(2))

def wait(item):
    os.write(1, f"{os.getpid()} {os.getppid()}\\n".encode())
    time.sleep(60)

apart(work, 1, lambda: None, 0.05)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_processes_of_a_process_end_with_it(how):
    """Whether it is interrupted, with all its processes as by a terminal, or killed alone."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "start_new_session": True}
    options["preexec_fn"] = default_signals
    with subprocess.Popen([sys.executable, "-c", APART], **options) as parent:
        processes = {int(number) for _ in range(2) for number in parent.stdout.readline().split()}
        assert len(processes) == 3
        os.killpg(parent.pid, how) if how == signal.SIGINT else parent.kill()
        parent.wait(timeout=20)
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{process}") for process in processes):
        assert time.monotonic() < deadline, "a process lives on"
        time.sleep(0.05)


def test_a_function_apart_returns_raises_and_is_watched():
    looks = []
    assert apart(abs, -3, lambda: looks.append(1), 0.001) == 3
    assert apart(time.sleep, 0.2, lambda: looks.append(1), 0.001) is None
    assert looks
    with pytest.raises(ZeroDivisionError):
        apart(lambda item: 1 / item, 0, lambda: None, 1)
    with pytest.raises(UsageError, match="a process was killed"):
        apart(os._exit, 1, lambda: None, 1)
