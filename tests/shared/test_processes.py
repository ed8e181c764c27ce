import os
import signal
import subprocess
import sys
import time

import pytest

from support.commands import ROOT
from support.signals import PATIENCE, default_signals, is_alive, wait_until

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
    code = CODE.replace("time.sleep(0.3)", "time.sleep(10**5)")
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "start_new_session": True}
    options["preexec_fn"] = default_signals
    with subprocess.Popen([sys.executable, "-c", code], **options) as parent:
        workers = {int(parent.stdout.readline()) for _ in range(2)}
        for _ in range(2):
            os.killpg(parent.pid, signal.SIGINT)
            time.sleep(0.15)
        parent.wait(timeout=PATIENCE)
    assert not any(map(is_alive, workers))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_its_parent(how):
    options = {"stdout": subprocess.PIPE, "text": True, "preexec_fn": default_signals}
    with subprocess.Popen([sys.executable, "-c", CODE], **options) as parent:
        workers = set()
        while len(workers) < 2:
            workers.add(int(parent.stdout.readline()))
        parent.send_signal(how)
    assert parent.returncode == -how
    wait_until(lambda: not any(map(is_alive, workers)), "a worker lives on")


def run_as_file(folder, text):
    """Run a program that is imported again by the processes that it starts, and that find posnet."""
    (folder / "work.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "work.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        preexec_fn=default_signals,
    )


def test_a_process_that_fails_leaves_no_lock(tmp_path):
    """Python would warn of it. fairseq's modules have such locks."""
    text = (
        "import multiprocessing\nfrom posnet_fairseq.shared.processes import elsewhere\n"
        "def fail(item):\n    global lock\n    lock = multiprocessing.Lock()\n    raise ValueError(item)\n"
        "if __name__ == '__main__':\n    try:\n        elsewhere(fail, 3)\n"
        "    except ValueError as error:\n        print(error)\n"
    )
    done = run_as_file(tmp_path, text)
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_a_process_that_starts_leaves_interrupts_to_its_parent(tmp_path):
    """A terminal sends them to both."""
    text = (
        "import os, signal\nfrom posnet_fairseq.shared.processes import elsewhere\n"
        "if __name__ == '__main__':\n    print(elsewhere(abs, -3))\n    signal.raise_signal(signal.SIGINT)\n"
        "else:\n    signal.raise_signal(signal.SIGINT)\n"
    )
    done = run_as_file(tmp_path, text)
    assert (done.stdout, done.returncode) == ("3\n", -signal.SIGINT), done.stderr
    assert done.stderr.count("Traceback") == 1, "of the parent, which then had its own"


MEMORY = """
import time
from posnet_fairseq.shared import processes
from posnet_fairseq.shared.processes import resident

SIZE = 2**28

def with_holes():
    return [bytearray(b"x") * 2**16 for _ in range(SIZE // 2**16)][9::10]

def gives_back(least, since=float("-inf")):
    processes._least, processes._since, full = least, since, resident()
    processes.give_memory_back()
    return resident() < full - SIZE / 2

small, held = resident(), [with_holes()]
assert gives_back(small)
assert time.monotonic() - processes._since < 1000
left = processes._least
held.append(with_holes())
assert not gives_back(left, since=float("inf"))  # too early
assert not gives_back(resident())  # no more than a quarter
assert gives_back(left)
"""


def test_much_free_memory_is_given_back_to_the_system_now_and_then():
    subprocess.run([sys.executable, "-c", MEMORY], check=True)
