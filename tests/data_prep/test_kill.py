"""kill -9 in every stage: the same command goes on, and what comes out is the same to the byte."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict

import pytest

from support import archives
from support.commands import ROOT
from support.signals import PATIENCE, default_signals, processes_of, wait_until

pytestmark = pytest.mark.thorough  # 70 s: data are prepared once for each stage that is killed

# A posnet-prepare that kills itself in a stage, when its bar has moved so often.
PROGRAM = """
import json, os, signal, sys
from posnet_data_prep import prepare
from posnet_data_prep.pipeline import lines, publish
from posnet_data_prep.sources import archives, published, transfer
from posnet_fairseq.shared import progress

entries, at, moves, name = json.loads(sys.argv[1])
for key, entry in entries.items():
    archives.ARCHIVES[key] = archives.Archive(**entry | {"urls": tuple(entry["urls"])})
transfer.CHUNK, published.BYTES_PER_PAIR, lines.BLOCK, lines.SECONDS_BETWEEN_SAVES = 1000, 1, 50, 0
main_process = os.getpid()

def kill():
    os.killpg(main_process, getattr(signal, name)) if name == "SIGINT" else os.kill(main_process, signal.SIGKILL)

class Bar(progress.Bar):
    moves = 0
    def move_to(self, done):
        super().move_to(done)
        if at and self._progress.tasks[self._task].description.startswith(at):
            self.moves += 1
            if self.moves == moves:
                kill()

progress.Bar = Bar
if at == "publish":
    links = []
    link = publish._link
    publish._link = lambda *paths: (links.append(link(*paths)), len(links) == moves and kill())
prepare.main(sys.argv[2:])
"""


def run(entries, out, downloads, at=None, moves=0, name="SIGKILL"):
    known = {key: asdict(entry) for key, entry in entries.items()}
    arguments = ["iwslt14.de-en", "--out", out, "--downloads", downloads, "--merges", "60", "--workers", "2"]
    command = [sys.executable, "-c", PROGRAM, json.dumps([known, at, moves, name]), *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    options = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True, "preexec_fn": default_signals}
    return subprocess.Popen(command, cwd=ROOT, env=environment, **options)


def hashes(out):
    files = [path for path in out.iterdir() if path.is_file() and path.name != "dataset.json"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def ends(out):
    """No process outlives the one that was killed. Dying takes a moment."""
    wait_until(lambda: not processes_of(out), "processes that outlived the one that was killed")


def test_killed_in_every_stage(tmp_path, server):
    contents, *_ = archives.iwslt14()
    entries = archives.expect(contents, server)
    out, downloads = tmp_path / "data", tmp_path / "downloads"
    undisturbed = run(entries, tmp_path / "whole", tmp_path / "others")
    assert undisturbed.wait(timeout=PATIENCE) == 0, undisturbed.stderr.read()
    places = [("download", 4), ("extract", 3), ("read train", 1), ("tokenize train", 4), ("tokenize test", 1)]
    places += [("split", 1), ("count", 5), ("learn", 30), ("apply train", 6), ("binarize", 1), ("publish", 4)]
    for at, moves in places:
        process = run(entries, out, downloads, at, moves)
        assert process.wait(timeout=PATIENCE) == -signal.SIGKILL, (at, process.stderr.read())
        ends(out)
        assert not (out / "dataset.json").exists()
    final = run(entries, out, downloads)
    assert final.wait(timeout=PATIENCE) == 0, final.stderr.read()
    assert hashes(out) == hashes(tmp_path / "whole")
    ends(out)
    cards = [json.loads((folder / "dataset.json").read_text()) for folder in (out, tmp_path / "whole")]
    assert cards[0]["sentences"] == cards[1]["sentences"]
    assert [stage["counts"] for stage in cards[0]["stages"].values()] == [
        stage["counts"] for stage in cards[1]["stages"].values()
    ]


def test_an_interrupt_ends_it_at_once(tmp_path, server):
    """Ctrl-C, which all processes of a terminal get: no traceback, no process left, and it goes on afterwards."""
    contents, *_ = archives.iwslt14()
    entries = archives.expect(contents, server)
    out = tmp_path / "data"
    process = run(entries, out, tmp_path / "downloads", "tokenize train", 2, "SIGINT")
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    ends(out)
    assert run(entries, out, tmp_path / "downloads").wait(timeout=PATIENCE) == 0
    assert (out / "dataset.json").exists()
