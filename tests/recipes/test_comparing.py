"""Comparisons: lists of systems, shares of a machine, figures beside scores."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import compare
import comparison
import pytest
from systems import System, chosen, read_systems

from posnet_fairseq.cli.mixers import option_rows
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.shared.errors import UsageError
from support.commands import ROOT
from support.training_log import training_log

LISTS = sorted((ROOT / "recipes/systems").glob("*.txt"))


def test_file_of_systems(tmp_path):
    path = tmp_path / "my list.txt"
    path.write_text("# a remark\n\none shaw\n  two   shaw  --shaw-values --gate gelu   # another\n")
    name, systems = chosen(str(path), "")
    assert name == "my list"
    assert systems == [System("one", "shaw"), System("two", "shaw", "--shaw-values --gate gelu")]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "names no system"),
        ("# nothing\n", "names no system"),
        ("rposnet\n", "line 1: 'rposnet' stands alone"),
        ("a rposnet\n\na shaw\n", "a is there twice"),
        ("a/b rposnet\n", "'a/b' is no name"),
        ("a rposnt\n", "Did you mean rposnet"),
        ("a attention\n", "attention is called transformer_pos in architectures"),
        ("a shaw --gate\0none\n", "has a NUL byte in line 1"),
    ],
)
def test_bad_list_is_one_sentence(tmp_path, text, sentence):
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(UsageError, match=re.escape(sentence)):
        read_systems(tmp_path / "list.txt")


def test_list_that_is_no_text_is_one_sentence(tmp_path):
    (tmp_path / "list.txt").write_bytes(b"a shaw\nb\xff shaw\n")
    for path, sentence in ((tmp_path / "list.txt", "not UTF-8: line 2"), (tmp_path, "Is a directory")):
        with pytest.raises(UsageError, match=sentence):
            read_systems(path)


def test_mixers_or_a_file():
    assert chosen(None, "shaw rposnet") == ("shaw+rposnet", [System("shaw", "shaw"), System("rposnet", "rposnet")])
    for path, mixers in ((None, " "), ("list.txt", "shaw")):
        with pytest.raises(UsageError):
            chosen(path, mixers)


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.name)
def test_ready_made_lists_have_options_that_their_mixers_read(path):
    names = {get_mixer(name).arch: name for name in mixer_names()}
    places = {"--encoder-self-mixer", "--decoder-self-mixer", "--cross-mixer"}
    for system in read_systems(path):
        known = {option for option, *_ in option_rows(get_mixer(names[system.mixer]))} | places
        assert set(re.findall(r"--\S+", system.options)) <= known, system


def test_lists_have_the_rows_of_the_papers_tables():
    assert {path.stem: len(read_systems(path)) for path in LISTS} == {
        "mixers": 19,
        "tables-2-3": 9,
        "table-4": 8,
        "table-5": 5,
        "table-6": 10,
    }


@pytest.mark.parametrize(("number", "expected"), [(1, ["4,5,6,7"]), (2, ["4,5", "6,7"]), (3, ["4", "5", "6"])])
def test_gpus_are_shared_equally(monkeypatch, number, expected):
    monkeypatch.setattr(compare, "gpus", lambda: (4, True))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    monkeypatch.delenv("CPUS", raising=False)
    assert [share["CUDA_VISIBLE_DEVICES"] for share in compare.shares(number)] == expected


def test_more_jobs_than_gpus_are_refused(monkeypatch):
    monkeypatch.setattr(compare, "gpus", lambda: (2, True))
    monkeypatch.delenv("CPUS", raising=False)
    with pytest.raises(UsageError, match="JOBS=3: this machine has 2 GPUs"):
        compare.shares(3)


@pytest.mark.parametrize(
    ("jobs", "gpus", "sentence"),
    [
        (2, "1", "JOBS=2: GPUS=1 are shared by all, and each needs one. Give at most JOBS=1"),
        (1, "5", "GPUS=5: this machine has 4 GPUs"),
        (5, "4", "JOBS=5: this machine has 4 GPUs"),
    ],
)
def test_no_job_is_left_without_a_gpu(monkeypatch, jobs, gpus, sentence):
    monkeypatch.setattr(compare, "gpus", lambda: (4, True))
    monkeypatch.delenv("CPUS", raising=False)
    monkeypatch.setenv("GPUS", gpus)
    with pytest.raises(UsageError, match=sentence):
        compare.shares(jobs)


@pytest.mark.parametrize(
    ("visible", "count", "expected"),
    [
        (None, 2, ["0", "1"]),
        ("3, 1", 2, ["3", "1"]),
        ("GPU-8932f937, GPU-aa", 2, ["GPU-8932f937", "GPU-aa"]),
        ("2,0,-1,1", 2, ["2", "0"]),  # CUDA sees no more than these
        ("0,1,2,9", 3, ["0", "1"]),
    ],
)
def test_gpus_are_shared_by_the_names_that_they_were_given(monkeypatch, visible, count, expected):
    monkeypatch.setattr(compare, "gpus", lambda: (count, True))
    for name in ("CPUS", "GPUS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [share["CUDA_VISIBLE_DEVICES"] for share in compare.shares(2)] == expected


def test_cores_are_shared(monkeypatch):
    monkeypatch.setattr(compare, "gpus", lambda: (0, False))
    monkeypatch.setattr(compare, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("CPUS", "2")
    assert compare.shares(2) == [{"OMP_NUM_THREADS": "2"}] * 2


@pytest.mark.parametrize(
    ("names", "given", "expected"),
    [
        ("a b c", "", ["a", "b"]),
        ("a b", "", ["a"]),
        ("a", "", ["a"]),
        ("a b c", "c", ["c"]),
        ("a b c", "c a", ["c", "a"]),
    ],
)
def test_baselines(names, given, expected):
    assert compare.baselines_of([System(name, "shaw") for name in names.split()], given) == expected


@pytest.mark.parametrize("given", ["d", "a b c", "a a"])
def test_other_baselines_are_refused(given):
    with pytest.raises(UsageError, match=f"BASELINES={given}: name one or two of a, b, c"):
        compare.baselines_of([System(name, "shaw") for name in "abc"], given)


def test_figures_of_a_run(tmp_path):
    (tmp_path / "train.log").write_text(training_log(end="\nhalf a line"))
    attempts = [{"peak_memory_bytes": bytes} for bytes in (5, 9, 7)]
    (tmp_path / "train.json").write_text(json.dumps({"settings": {}, "attempts": attempts, "finished": True}))
    rate = "posnet-translate: 3 sentences in 1.5 s, {} sentences and 9.0 tokens a second\n"
    (tmp_path / "translate.log").write_text("".join(f"$ posnet-translate\nnote\n{rate.format(r)}" for r in (1.0, 2.5)))
    assert comparison.training_speed(tmp_path) == 1010.5
    assert comparison.decoding_speed(tmp_path) == 2.5
    assert comparison.peak_memory(tmp_path) == 9
    (tmp_path / "train.log").write_text(training_log(gpu=True))
    assert comparison.peak_memory(tmp_path) == (80 - 66) * 2**30


# In place of the recipe of a run: it fails for one system, and leaves a file for each.
STAGES = """
echo "corpus: something that all say" >&2
touch "$DATA/$NAME.$SEED"
[ "$NAME" != b ] || { echo "training.py: error: b/train.json is no record." >&2; echo "and more" >&2; exit 2; }
"""


@pytest.fixture
def crew(monkeypatch, tmp_path):
    """Of three systems, one job at a time."""
    (tmp_path / "corpus.sh").write_text(STAGES)
    monkeypatch.setattr(compare, "RECIPE", tmp_path / "corpus.sh")
    monkeypatch.setattr(compare, "STEP", 0.05)
    jobs = [compare.Job(System(name, "shaw"), 1, tmp_path / name) for name in "abc"]
    for job in jobs:
        job.run.mkdir()
    return compare.Crew(jobs, [{}], tmp_path, 5)


def begun(folder):
    return {path.name for path in folder.glob("?.1")}


def test_one_that_fails_leaves_the_others_alone(crew, tmp_path, capfd):
    failed = crew.work()
    assert {job.system.name: sentence for job, sentence in failed.items()} == {"b": "b/train.json is no record"}
    assert begun(tmp_path) == {"a.1", "b.1", "c.1"}
    assert capfd.readouterr().err.count("something that all say") == 1


@pytest.mark.parametrize("damage", [b"{", b"", b"\xff", None])
def test_damaged_record_of_a_run_does_not_hurt_the_others(crew, tmp_path, damage):
    record = tmp_path / "b" / "train.json"
    record.mkdir() if damage is None else record.write_bytes(damage)
    assert [job.system.name for job in crew.work()] == ["b"]
    assert begun(tmp_path) == {"a.1", "b.1", "c.1"}


def test_log_that_cannot_be_read_ends_nothing(crew, tmp_path):
    (tmp_path / "corpus.sh").write_text(STAGES + "sleep 0.3")
    (tmp_path / "a" / "train.log").mkdir()
    (tmp_path / "c" / "train.log").write_text('x | INFO | train_inner | {"loss": "1"}\n')
    assert [job.system.name for job in crew.work()] == ["b"]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [(OSError(28, "No space left"), "the disk is full"), (RuntimeError("oh"), "RuntimeError: oh")],
)
def test_error_of_a_job_is_told_at_the_end(crew, tmp_path, monkeypatch, error, sentence):
    start = compare.Crew._start

    def fail(self, job, *more):
        if job.system.name == "a":
            raise error
        return start(self, job, *more)

    monkeypatch.setattr(compare.Crew, "_start", fail)
    failed = {job.system.name: text for job, text in crew.work().items()}
    assert set(failed) == {"a", "b"}
    assert sentence in failed["a"]
    assert begun(tmp_path) == {"b.1", "c.1"}


def refused(monkeypatch, capsys, tmp_path, *file, **settings):
    """What a comparison says that does not begin."""
    for name in ("GPUS", "CPUS", "NODES", "OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    given = {
        "SIZE": "tiny",
        "UPDATES": "2000",
        "METRICS": "bleu",
        "DATA": str(tmp_path / "data"),
        "DATASET": "iwslt14.de-en",
    }
    for name, value in (given | settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(compare.Crew, "work", lambda self: pytest.fail("it began"))
    with pytest.raises(SystemExit):
        compare.main([str(tmp_path / "data"), str(tmp_path / "runs"), *map(str, file)])
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"SEEDS": " "}, "SEEDS= : give one or more seeds between spaces, each once"),
        ({"SEEDS": "1 1"}, "SEEDS=1 1: give one or more seeds between spaces, each once"),
        ({"SEEDS": "1 two"}, "SEEDS=two: give whole numbers"),
        ({"SEEDS": "0"}, "SEEDS=0: give whole numbers"),
        ({"JOBS": "0"}, "JOBS=0: give whole numbers"),
        ({"JOBS": "-1"}, "JOBS=-1: give whole numbers"),
        ({"JOBS": "1.5"}, "JOBS=1.5: give whole numbers"),
        ({"BASELINES": "shaw shaw"}, "BASELINES=shaw shaw: name one or two of shaw, rposnet"),
        ({"OPTIONS": "--no-such-option"}, "shaw: fairseq-train: unrecognized arguments: --no-such-option"),
        ({"OPTIONS": "--help"}, "shaw: fairseq-train: its options were not understood"),
    ],
)
def test_comparison_that_cannot_begin_is_one_sentence(monkeypatch, capsys, tmp_path, settings, sentence):
    error = refused(monkeypatch, capsys, tmp_path, **{"MIXERS": "shaw rposnet"} | settings)
    assert sentence in error
    assert error.count("error: ") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--gate foo", "last: fairseq-train: argument --gate: invalid choice: 'foo'"),
        ("--seed 3", "last: OPTIONS=--seed 3: --seed has a variable of its own"),
        ("--x 'a b'", "last: OPTIONS=--x 'a b': quotes are not understood"),
    ],
)
def test_options_of_the_last_system_are_looked_at_before_the_first_begins(
    monkeypatch, capsys, tmp_path, options, sentence
):
    systems = tmp_path / "systems.txt"
    systems.write_text(f"first shaw\nlast rposnet {options}\n")
    assert sentence in refused(monkeypatch, capsys, tmp_path, systems, MIXERS="")
    assert list(tmp_path.iterdir()) == [systems]


def test_comparison_ends_with_the_recipe_that_began_it():
    """compare.sh knows its caller; one that has ended is not waited for."""
    settings = {"DATASET": "wmt14.en-de", "MIXERS": "shaw", "DRY_RUN": "1", "CPUS": "1", "POSNET_PARENT": "999999999"}
    done = subprocess.run(
        ["bash", ROOT / "recipes/compare.sh"], env=os.environ | settings, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")


def test_data_are_not_prepared_on_when_the_recipe_was_killed():
    script = "export POSNET_PARENT=$$; python recipes/lib/until_recipe_ends.py bash -c 'echo $$; exec sleep 600'; true"
    with subprocess.Popen(["bash", "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as recipe:
        command = int(recipe.stdout.readline())
        recipe.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while sleeps(command):
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.05)


def sleeps(process):
    try:
        return b"sleep" in Path(f"/proc/{process}/cmdline").read_bytes()  # nothing is in that of one that has ended
    except FileNotFoundError:
        return False
