"""Searches for hyperparameters: what they try and choose, with trainings that are made up."""

import json
import math
import re

import pytest

from posnet_fairseq.runs import devices, jobs, tune
from posnet_fairseq.runs.command_stage import Diverged
from posnet_fairseq.runs.systems import System, read_systems
from posnet_fairseq.runs.tune import TuneSettings
from posnet_fairseq.shared.errors import UsageError


@pytest.fixture
def search(monkeypatch, tmp_path):
    """A function that searches, and returns trials.json and the names of the trainings that it made.

    In place of trainings: the perplexity is least with a rate of 4e-3 and a distance of 16.
    """
    trained = []

    def training(settings, work):
        if settings.dry_run:
            return
        if "--lr 8" in settings.options:
            raise Diverged("train: it has no gradients.")
        trained.append(settings.name)
        better = 1 if "--lr 4e-3" in settings.options else 3
        better += 100 if "--clip-distance 16" in settings.options else 300
        settings.run.mkdir(parents=True, exist_ok=True)
        better = math.nan if "--lr 9" in settings.options else better + 0.5
        found = [{"valid_ppl": f"{better + 20 - update}", "valid_num_updates": f"{update}"} for update in (5, 10)]
        log = "".join(f"x | INFO | valid | {json.dumps(values)}\n" for values in found)
        (settings.run / "train.log").write_text(log)

    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dataset.json").write_text("{}")
    monkeypatch.setattr(jobs, "run_stages", training)
    monkeypatch.setattr(jobs, "STEP", 0.05)
    monkeypatch.setattr(devices, "gpus", lambda: (0, False))
    monkeypatch.setattr(jobs, "check_trainings", lambda runs: {})

    def run(**texts):
        places = {"data": str(tmp_path / "data"), "runs": str(tmp_path / "runs"), "size": "tiny", "cpus": "1"}
        trained.clear()
        folder = tune.tune(TuneSettings.parsed(places | {"mixers": "rposnet fouriernet"} | texts))
        return folder, trained

    return run


def test_one_option_after_the_other_is_chosen(search, capsys):
    folder, trained = search(lrs="2e-3 4e-3", dropouts="0.1 0.2", clip_distances="8 16")
    assert sorted(trained) == sorted(
        [
            "rposnet_lr2e-3_dropout0.1_clip-distance8",
            "rposnet_lr4e-3_dropout0.1_clip-distance8",
            "rposnet_lr4e-3_dropout0.2_clip-distance8",
            "rposnet_lr4e-3_dropout0.1_clip-distance16",
            "fouriernet_lr2e-3_dropout0.1",  # which has no clip distance
            "fouriernet_lr4e-3_dropout0.1",
            "fouriernet_lr4e-3_dropout0.2",
        ]
    )
    assert read_systems(folder / "tuned.txt") == [
        System("rposnet", "rposnet", "--lr 4e-3 --dropout 0.1 --clip-distance 16"),
        System("fouriernet", "fouriernet", "--lr 4e-3 --dropout 0.1"),  # of equal ones, the first
    ]
    found = json.loads((folder / "trials.json").read_text())
    assert found["rposnet"]["chosen"] == {"--lr": "4e-3", "--dropout": "0.1", "--clip-distance": "16"}
    trial = found["rposnet"]["trials"]["rposnet_lr2e-3_dropout0.1_clip-distance8_tiny_s1"]
    assert (trial["perplexity"], trial["updates"]) == (313.5, 10)
    chosen = [line for line in capsys.readouterr().out.splitlines() if line.endswith("chosen")]
    assert [re.split(r"\s{2,}", line)[:3] for line in chosen] == [
        ["rposnet", "4e-3", "0.1"],
        ["fouriernet", "4e-3", "0.1"],
    ]


@pytest.mark.parametrize("diverging", [8, 9], ids=["without gradients", "without perplexity"])
def test_a_training_that_diverges_is_the_worst_trial(search, capsys, diverging):
    folder, _ = search(mixers="fouriernet", lrs=f"{diverging} 4e-3", dropouts="0.1 0.2")
    assert read_systems(folder / "tuned.txt") == [System("fouriernet", "fouriernet", "--lr 4e-3 --dropout 0.1")]
    trials = json.loads((folder / "trials.json").read_text())["fouriernet"]["trials"]
    assert [trial["perplexity"] for trial in trials.values()] == [None, 311.5, 311.5]
    assert re.search(rf"fouriernet +{diverging} +0\.1 +diverged", capsys.readouterr().out)


def test_a_system_whose_trainings_all_diverge_is_not_chosen(search, tmp_path, capsys):
    with pytest.raises(UsageError, match=r"fouriernet: all trainings diverged.* lower rates \(--lrs\)"):
        search(lrs="8", systems="", mixers="fouriernet")
    (trials,) = tmp_path.glob("runs/*/*/trials.json")
    assert json.loads(trials.read_text())["fouriernet"]["chosen"] == {}
    assert "chosen" not in capsys.readouterr().out


def test_a_second_search_keeps_the_trials_of_the_first(search):
    folder, _ = search(mixers="fouriernet", lrs="2e-3", dropouts="0.1")
    search(mixers="fouriernet", lrs="4e-3", dropouts="0.1")
    with pytest.raises(UsageError, match=r"tuned\.txt has only what earlier searches have found"):
        search(mixers="fouriernet", lrs="8", dropouts="0.1")
    found = json.loads((folder / "trials.json").read_text())["fouriernet"]
    assert [trial["perplexity"] for trial in found["trials"].values()] == [313.5, 311.5, None]
    assert read_systems(folder / "tuned.txt") == [System("fouriernet", "fouriernet", "--lr 4e-3 --dropout 0.1")]


def test_searches_of_other_systems_in_a_list_of_the_same_name_are_kept(search, tmp_path):
    systems = tmp_path / "list.txt"
    for name in ("first", "second"):
        systems.write_text(f"{name} fouriernet\n")
        folder, _ = search(systems=str(systems), mixers="", lrs="2e-3", dropouts="0.1")
    found = json.loads((folder / "trials.json").read_text())
    assert {name: list(its["trials"]) for name, its in found.items()} == {
        name: [f"{name}_lr2e-3_dropout0.1_tiny_s1"] for name in ("first", "second")
    }


def test_a_system_keeps_options_of_its_own(search, tmp_path):
    (tmp_path / "systems.txt").write_text("plain rposnet --gate none\n")
    folder, trained = search(
        mixers="", systems=str(tmp_path / "systems.txt"), lrs="1e-3", dropouts="0", clip_distances="4"
    )
    assert trained == ["plain_lr1e-3_dropout0_clip-distance4"]
    (chosen,) = read_systems(folder / "tuned.txt")
    assert chosen == System("plain", "rposnet", "--gate none --lr 1e-3 --dropout 0 --clip-distance 4")


def test_dry_run_writes_nothing(search, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(jobs, "run_stages", lambda settings, work: shown.append(settings.name))
    search(dry_run="1", mixers="rposnet", lrs="2e-3 4e-3", dropouts="0.1 0.2", clip_distances="8 16")
    assert len(shown) == len(set(shown)) == 4
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").rglob("trials.json"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"dropouts": "0.1 1"}, "--dropouts 1: give a number from 0 to below 1, such as 0.1."),
        ({"stop_on": "bleu"}, "--stop-on bleu: a search compares perplexities. Leave it out."),
        ({"lr": "1e-3"}, "--lr 1e-3: a search tries several rates. Give them with --lrs."),
        ({"options": "--dropout=0.3"}, "rposnet: its options have --dropout, which the search chooses."),
        ({"mixers": ""}, "give one file of systems"),
    ],
)
def test_bad_values_are_one_sentence(search, given, sentence):
    with pytest.raises(UsageError) as raised:
        search(**given)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)
