"""Training on several machines: what they agree on, and processes that end with torchrun."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore

from posnet_fairseq.runs.distributed import machines
from posnet_fairseq.runs.distributed.machines import Setup, agree
from support import commands

RANK = "posnet_fairseq/runs/distributed/rank.py"
OPTIONS = ["data", "--lr", "1", "--save-dir", "run/checkpoints", "--seed", "1"]


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "train.json"
    path.write_text("this attempt")
    return path


def outcomes(*setups):
    """What each of several processes makes of it: arguments, or the text of a ValueError."""
    store = HashStore()

    def one(rank):
        try:
            return agree(store, rank, len(setups), setups[rank])
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(len(setups)) as pool:
        return list(pool.map(one, range(len(setups))))


def test_all_run_what_the_first_machine_has_decided(record):
    first = Setup(0, 2, [*OPTIONS, "--reset-dataloader"], "key", record)
    others = [Setup(machine, 2, OPTIONS, "key", record) for machine in (1, 1, 2, 2)]
    assert outcomes(first, first, *others) == [[*OPTIONS, "--reset-dataloader"]] * 6


def test_machines_may_have_names_of_their_own_for_the_same_folders(record):
    own = ["/local/data", *OPTIONS[1:]]
    own[4] = "/mount/run/checkpoints"
    first = Setup(0, 1, [*OPTIONS, "--reset-dataloader"], "key", record)
    assert outcomes(first, Setup(1, 1, own, "key", record))[1] == [*own, "--reset-dataloader"]


@pytest.mark.parametrize(
    ("processes", "arguments", "dataset", "sentence"),
    [
        (1, ["data", "--lr", "2", *OPTIONS[3:]], "key", "machine 1 .* train with --lr 2 and the first with --lr 1"),
        (1, [*OPTIONS, "--gate", "none"], "key", "machine 1 .* would train with --gate none and the first without"),
        (2, OPTIONS, "key", "machine 1 .* has 2 processes and the first has 1"),
        (1, OPTIONS, "other", "machine 1 .* has other data than the first: data"),
    ],
)  # fmt: skip
def test_machines_with_other_settings_are_refused_by_all(record, processes, arguments, dataset, sentence):
    setups = [Setup(0, 1, OPTIONS, "key", record), Setup(1, processes, arguments, dataset, record)]
    third = Setup(2, 1, OPTIONS, "key", record)
    found = set(outcomes(*setups, third))
    assert len(found) == 1
    assert re.search(sentence, found.pop())


@pytest.mark.parametrize("stale", ["an earlier attempt", None])
def test_runs_that_machines_do_not_share_are_noticed(monkeypatch, tmp_path, record, stale):
    monkeypatch.setattr(machines, "PATIENCE", 0.2)
    elsewhere = tmp_path / "elsewhere" / "train.json"
    elsewhere.parent.mkdir()
    if stale:
        elsewhere.write_text(stale)
    found = outcomes(Setup(0, 1, OPTIONS, "key", record), Setup(1, 1, OPTIONS, "key", elsewhere))
    assert found == [f"machine 1 (--node-rank) does not see what the first has written: {elsewhere}. "
                     "Runs must be in a folder that all machines share (--runs)."] * 2  # fmt: skip


def test_what_is_seen_late_is_waited_for(tmp_path, record):
    late = tmp_path / "late.json"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(outcomes, Setup(0, 1, OPTIONS, "key", record), Setup(1, 1, OPTIONS, "key", late))
        late.write_text(record.read_text())
        assert waiting.result() == [OPTIONS] * 2


def test_each_process_says_what_torchrun_and_its_folders_tell(monkeypatch, tmp_path):
    (tmp_path / "dataset.json").write_text(json.dumps({"key": "k"}))
    monkeypatch.setenv("GROUP_RANK", "3")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    setup = Setup.own([str(tmp_path), "--save-dir", f"{tmp_path}/run/checkpoints"])
    assert (setup.machine, setup.processes, setup.dataset) == (3, 4, "k")
    assert setup.record == tmp_path / "run" / "train.json"


# A torchrun of one line: it starts the script that it names, as torchrun does.
def test_process_whose_torchrun_has_ended_ends_and_says_so():
    script = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '{RANK}', '--help']).returncode)"
    done = commands.python(script, cwd=commands.ROOT)
    assert done.returncode == 1
    assert done.stderr == "rank.py: error: torchrun, which started this, has ended.\n"
