import os
import signal
import subprocess
import sys
import time
import traceback

import pytest

from posnet_fairseq.shared.processes import elsewhere, in_order, repaired
from support.commands import ROOT, python
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


@pytest.fixture
def _no_semaphores(monkeypatch):
    """As without a /dev/shm that can be written."""

    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("multiprocessing.synchronize.SemLock.__init__", refused)


@pytest.mark.usefixtures("_no_semaphores")
def test_processes_need_no_semaphores():
    """Some containers have no /dev/shm that can be written."""
    assert list(in_order(abs, range(-20, 0), 2)) == [*range(20, 0, -1)]
    assert elsewhere(abs, -3) == 3
    assert repaired(["fairseq-train", "data"])[-2:] == ["fairseq-train", "data"]
    assert repaired(["fairseq-train"])[0] == sys.executable, "fairseq's import needs one"


def test_items_and_results_may_be_larger_than_pipes():
    sizes = [1, 10**6, 10, 10**5, 10**6, 1] * 2
    assert list(in_order(lambda item: item + item, (bytes(size) for size in sizes), 2)) == [bytes(2 * n) for n in sizes]


def test_few_items_are_taken_ahead():
    taken = []
    results = in_order(abs, (taken.append(item) or item for item in range(100)), 2)
    for done in range(20):
        assert next(results) == done
        assert len(taken) <= done + 8
    results.close()


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(one)


def raises(item):
    raise Unpicklable("a", "b") if item == 2 else OSError(2, "No such file", "x") if item == 3 else ValueError(item)


@pytest.mark.parametrize(
    ("item", "kind", "text"), [(1, ValueError, "1"), (2, RuntimeError, "Unpicklable: a"), (3, OSError, "No such file")]
)
def test_errors_tell_where_they_were_raised(item, kind, text):
    with pytest.raises(kind, match=text) as raised:
        list(in_order(raises, [item], 2))
    assert "in raises" in "".join(traceback.format_exception(raised.value))


def test_results_come_before_the_error_of_a_later_item():
    def items():
        yield from (-1, -2)
        raise ValueError("of the third")

    results = in_order(abs, items(), 2)
    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(ValueError, match="of the third"):
        next(results)


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


PRODUCTS = """
import signal
import torch
from posnet_fairseq.shared.processes import in_order

def product(number):
    torch.set_num_threads(2)
    signal.alarm(30)
    return int((number * x @ x)[0, 0])

torch.set_num_threads(2)
x = torch.ones(300, 300)
x @ x, x.exp()  # in threads
print(list(in_order(product, range(4), 2)))
"""


def test_forks_of_a_process_with_threads_of_torch_compute():
    assert python(PRODUCTS, timeout=PATIENCE).stdout == "[0, 300, 600, 900]\n"


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
