"""Functions over the lines of files."""

import json
import os
import time
from collections import Counter

import pytest

from posnet_data_prep.pipeline import lines as module
from posnet_data_prep.pipeline.lines import map_lines
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.processes import in_order, worker_number
from posnet_fairseq.shared.progress import ProgressReporter


@pytest.fixture
def sources(tmp_path):
    paths = tmp_path / "a", tmp_path / "b"
    for path in paths:
        path.write_text("".join(f"{path.name} {number}\u2028\n" for number in range(7001)), newline="\n")
    return paths


def even(rows):
    """The pairs with an even number, in capitals."""
    kept = [row for row in rows if int(row[0].split()[1]) % 2 == 0]
    return [[row[0].upper() for row in kept], [row[1] for row in kept]], Counter(kept=len(kept))


def run(sources, folder, processes=1, function=even, resume=None):
    folder.mkdir(exist_ok=True)
    targets = [folder / "A", folder / "B"]
    with ProgressReporter().stage("test") as bar:
        counts = map_lines(function, sources, targets, processes, bar, resume)
    return [path.read_bytes() for path in targets], counts, bar.done


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_change_nothing(sources, tmp_path, processes):
    one = run(sources, tmp_path / "one")
    assert one == run(sources, tmp_path / "more", processes)
    expected = "".join(f"A {number}\u2028\n" for number in range(0, 7001, 2)).encode()
    assert one[0][0] == expected
    assert one[1:] == ({"kept": 3501}, 7001)


class Stopped(Exception):
    pass


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("stop", [0, 2500, 5000])
def test_goes_on_where_it_was(sources, tmp_path, monkeypatch, processes, stop):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_SAVES", 0)
    note, folder = tmp_path / "note", tmp_path / "out"
    seen = []

    def stops(rows):
        if any(int(row[0].split()[1]) >= stop for row in rows):
            raise Stopped
        return even(rows)

    with pytest.raises(Stopped):
        run(sources, folder, processes, stops, note)
    for name in ("A", "B"):  # what had been written but not noted
        with open(folder / name, "ab") as file:
            file.write(b"torn")

    def watched(rows):
        seen.extend(rows)
        return even(rows)

    done = json.loads(note.read_text())["lines"] if note.exists() else 0
    assert done == stop // 2000 * 2000
    assert run(sources, folder, 1, watched, note) == run(sources, tmp_path / "whole")
    assert len(seen) == 7001 - done
    seen.clear()
    assert run(sources, folder, 1, watched, note) == run(sources, tmp_path / "whole"), "when it had ended"
    assert not seen


@pytest.mark.parametrize("mortal", [{0}, {1}, {0, 1}])
def test_a_killed_process_is_told(mortal):
    def dies(item):
        while worker_number() not in mortal:
            time.sleep(1)
        os.kill(os.getpid(), 9)

    with pytest.raises(UsageError, match="a process was killed, perhaps because memory is short"):
        list(in_order(dies, range(5), 2))


def test_files_of_different_length(sources, tmp_path):
    sources[1].write_text("b 0\n")
    with pytest.raises(UsageError, match="have different numbers of lines"):
        run(sources, tmp_path / "out")
