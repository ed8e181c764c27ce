"""Comparisons: lists of systems, shares of a machine, figures beside scores."""

import json
import re

import compare
import comparison
import pytest
from commands import ROOT
from systems import System, chosen, read_systems
from training_log_of import training_log

from posnet_fairseq.cli.mixers import option_rows
from posnet_fairseq.errors import UsageError
from posnet_fairseq.registry import get_mixer, mixer_names

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
    ],
)
def test_bad_list_is_one_sentence(tmp_path, text, sentence):
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(UsageError, match=re.escape(sentence)):
        read_systems(tmp_path / "list.txt")


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


@pytest.mark.parametrize("given", ["d", "a b c"])
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
