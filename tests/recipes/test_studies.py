"""Studies: protocols, which runs they make, and the results that these leave."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import sacrebleu

from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import MetricOptions
from posnet_fairseq.runs.run_settings import TranslationData
from posnet_fairseq.runs.systems import find_mixer
from posnet_fairseq.runs.tune import has_clip_distance
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.records import Record
from posnet_fairseq.studies import protocol, results, running
from posnet_fairseq.studies.running import StudySettings
from support.commands import NARROW, python
from support.corpus import prepared
from support.study import result as study_result

PROTOCOL = """
settings: {dataset: study.en-de, size: tiny, updates: 8, interval: 2, average: 2, patience: 3, tokens: 400,
  max_tokens: 200, warmup: 4, max_positions: 32, max_len_a: 0, max_len_b: 8}
beams: [1, 2]
baselines: [rposnet, fouriernet]
test_sets: {test: all there is}
joined: [5]
margin: 1
claims: []
systems:
  rposnet: {mixer: rposnet, options: --lr 2e-3 SIZES, seeds: [1, 2]}
  fouriernet: {mixer: fouriernet, options: --lr 4e-3 SIZES, seeds: [1]}
""".replace("SIZES", NARROW)
# posnet-run, with the protocols of the folder that is its first argument.
PROGRAM = """
import sys
from pathlib import Path
from posnet_fairseq.studies import protocol
protocol.PROTOCOLS = Path(sys.argv.pop(1))
from posnet_fairseq.cli.run import main
main()
"""


@pytest.fixture
def small(monkeypatch, tmp_path):
    """The only study there is, and a function that reads settings."""
    (tmp_path / "small.yaml").write_text(PROTOCOL)
    monkeypatch.setattr(protocol, "PROTOCOLS", tmp_path)
    places = {name: str(tmp_path / name) for name in ("data", "runs", "results")}
    return lambda **texts: StudySettings.parsed({"study": "small"} | places | texts)


def test_the_command_that_makes_missing_data_is_said(small, tmp_path):
    (tmp_path / "small.yaml").write_text(f"prepare: made.en-de --join 5{PROTOCOL}")
    with pytest.raises(
        UsageError, match=r"data is not there\. Make it: posnet-prepare made\.en-de --join 5 --out .*data$"
    ):
        running.run_study(small())


@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_ignore_case_if_the_dataset_does(tmp_path, lowercase):
    references = ["The Old House Stands by the River.", "Nobody KNOWS why It Rains today."]
    found = [line.lower() for line in references]
    for name, lines in (("reference", references), ("found", found)):
        (tmp_path / name).write_text("\n".join(lines))
    metrics = protocol.read_study("convergence").metrics("de", lowercase)
    scores = {
        name: results.score_of(metric, results.statistics_of(metric, tmp_path / "found", tmp_path / "reference"))
        for name, metric in metrics.items()
    }
    assert scores["bleu"].score == pytest.approx(
        sacrebleu.corpus_bleu(found, [references], lowercase=lowercase).score, abs=1e-4
    )
    assert scores["chrf"].signature["case"] == ("lc" if lowercase else "mixed")


def chosen(settings):
    return running.chosen(protocol.read_study(settings.study), settings)


@pytest.mark.parametrize("name", protocol.known_studies())
def test_protocol_can_be_followed(name):
    study = protocol.read_study(name)
    assert set(study.baselines) < set(study.systems)
    for claim in study.claims:
        assert {claim.system, claim.other} <= set(study.systems)
    for each, system in study.systems.items():
        settings = running.run_of(study, each, 1, StudySettings.parsed({"study": name}))
        find_mixer(settings.mixer, name)
        assert settings.patience is not None
        assert settings.precision == "fp32"
        assert "precision" not in running.protocol_of(study, settings)  # results of before have none
        # All hyperparameters that were tuned are said.
        assert "--dropout" in system.options.split()
        assert "--lr" in system.options.split() or "lr" in study.settings
        assert ("--clip-distance" in system.options) == has_clip_distance(system)


def test_runs_come_seed_by_seed(small):
    assert chosen(small()) == [("rposnet", 1), ("fouriernet", 1), ("rposnet", 2)]
    assert chosen(small(only="rposnet")) == [("rposnet", 1), ("rposnet", 2)]
    assert chosen(small(seed="2")) == [("rposnet", 2)]
    assert chosen(small(only="fouriernet,rposnet", seed="3")) == [("fouriernet", 3), ("rposnet", 3)]  # one more


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"study": "smal"}, "smal: choose one of small. Did you mean small?"),
        ({"study": ""}, "no study is named: choose one of small."),
        ({"only": "rposnt"}, "--only rposnt: choose one of rposnet fouriernet. Did you mean rposnet?"),
        ({"results": __file__}, f"--results {__file__}: Not a directory. Choose another folder."),
    ],
)
def test_what_is_not_in_the_protocol_is_one_sentence(small, given, sentence):
    with pytest.raises(UsageError) as raised:
        running.run_study(small(**given))
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.fixture
def made(small, tmp_path, monkeypatch):
    """A function that begins the study, and returns the runs that it would make."""
    begun = []
    monkeypatch.setattr(running, "prepare_data", lambda settings: None)
    monkeypatch.setattr(TranslationData, "read", lambda folder, dry_run: TranslationData("en", "de", "0"))
    monkeypatch.setattr(running, "do_all", lambda runs, *_, **__: begun.extend(runs))

    def make(**texts):
        begun.clear()
        running.run_study(small(**texts))
        return [(run.system, run.seed) for run in begun]

    return make


def result(tmp_path, system="rposnet", seed=1, **changed):
    study = protocol.read_study("small")
    content = study_result("small", system, seed, 0.5, {"test": 3})
    run = running.run_of(study, system, seed, StudySettings.parsed({"study": "small"}))
    content["settings"] = running.protocol_of(study, run) | changed
    results.write_result(results.path_of(tmp_path / "results", system, seed), content)


def test_what_has_a_result_is_not_made_again(made, tmp_path):
    assert made() == [("rposnet", 1), ("fouriernet", 1), ("rposnet", 2)]
    result(tmp_path, "rposnet", 1)
    assert made() == [("fouriernet", 1), ("rposnet", 2)]
    result(tmp_path, "fouriernet", 1)
    assert made() == [("rposnet", 2)]
    result(tmp_path, "rposnet", 2)
    assert made() == []


def test_seeds_beyond_the_protocol_are_made_of_systems_that_are_named(made):
    with pytest.raises(UsageError, match=r"--seed 4,5: the protocol has no run with it\. Name systems with --only"):
        made(seed="4 5")
    with pytest.raises(UsageError, match="--only ,: give one or more"):
        made(only=",")
    assert made(seed="4", only="fouriernet rposnet") == [("fouriernet", 4), ("rposnet", 4)]


def test_a_result_of_another_protocol_is_refused(made, tmp_path):
    result(tmp_path, updates="9")
    with pytest.raises(UsageError, match=r"rposnet_s1\.json was made under another protocol \(updates\). Remove it"):
        made()
    result(tmp_path, seed=1)
    assert ("rposnet", 1) not in made(runs=str(tmp_path / "elsewhere"))


def test_other_test_sets_are_refused_before_a_training(made, monkeypatch):
    data = TranslationData("en", "de", "0", test_sets=("test", "test1"))
    monkeypatch.setattr(TranslationData, "read", lambda folder, dry_run: data)
    with pytest.raises(UsageError, match=r"has the test sets test, test1, and small is scored on test\. Give another"):
        made()


def test_other_data_are_refused_before_a_training(made, tmp_path, monkeypatch):
    result(tmp_path)
    monkeypatch.setattr(TranslationData, "read", lambda folder, dry_run: TranslationData("en", "de", "1"))
    with pytest.raises(UsageError, match=r"made with other data than that in .*\. Give another folder \(--results\)\."):
        made()
    assert made(results=str(tmp_path / "new")) == [("rposnet", 1), ("fouriernet", 1), ("rposnet", 2)]


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        ("fairseq-train data --cpu", 0.5),
        ("torchrun --nnodes 1 --nproc-per-node 2 rank.py data --cpu", 1.0),
        ("fairseq-train data", None),
    ],
)
def test_cpu_time_of_an_update_is_that_of_all_processes(tmp_path, command, seconds):
    updates = [{"nll_loss": 5, "wps": 9, "num_updates": number, "cpu": 7 + number / 2} for number in (1, 2, 3)]
    # It goes on.
    updates += [values | {"num_updates": number, "cpu": number / 2} for number, values in enumerate(updates, 4)]
    lines = [f"x | INFO | train_inner | {json.dumps(values)}" for values in updates]
    lines.append(f"x | INFO | valid | {json.dumps({'valid_ppl': 9, 'valid_num_updates': 3})}")
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    record = Record(tmp_path / "train.json")
    record.begin({}, command=command.split(), commit="", versions={}, machine={})
    record.end("finished", seconds=3)
    found = running.training_of(tmp_path)
    assert (found["cpu_seconds_per_update"], found["precision"]) == (seconds, "fp32")
    record.begin({}, command=[*command.split(), "--bf16"], commit="", versions={}, machine={})
    assert running.training_of(tmp_path)["precision"] == "bf16 and fp32"


def test_cpu_time_of_a_translation_is_that_of_the_last_time_it_was_done(tmp_path):
    record = Record(tmp_path / "translate.json")
    for outcome, seconds in (("interrupted", 1), ("finished", 2), ("exit code 1", 4), ("finished", 8)):
        record.begin({})
        record.end(outcome, cpu_seconds=seconds)
    assert running._cpu_seconds(record) == 12
    del record.content["attempts"][2]["cpu_seconds"]  # it was killed
    assert running._cpu_seconds(record) is None


@pytest.mark.thorough  # 45 s: a run from the training to five translations
def test_a_run_leaves_its_result(tmp_path):
    """Trained, averaged, searched with the beam of the validation set, in both precisions; and made only once."""
    card = prepared(tmp_path, tmp_path / "data", train=140) / "dataset.json"
    card.write_text(card.read_text().replace('"dataset": "corpus"', '"dataset": "study.en-de"'))
    (tmp_path / "protocols").mkdir()
    (tmp_path / "protocols/small.yaml").write_text(PROTOCOL)
    options = {"seed": 1, "precision": "bf16"} | {name: tmp_path / name for name in ("data", "runs", "results")}
    words = [tmp_path / "protocols", "study", "small", "--only", "rposnet"]
    words += [f"--{name}={value}" for name, value in options.items()]
    place = {"env": os.environ | {"OMP_NUM_THREADS": "1"}, "cwd": tmp_path}
    done = python(PROGRAM, *words, **place)
    assert done.returncode == 0, done.stdout + done.stderr
    path = tmp_path / "results/rposnet_s1.json"
    found = json.loads(path.read_text())
    assert found["training"]["validation"]["updates"] == [2, 3, 4, 6, 8]  # 3: the end of an epoch
    assert found["training"]["best_perplexity"] == min(found["training"]["validation"]["perplexity"])
    assert found["training"]["precision"] == "bf16"
    assert found["training"]["cpu_seconds_per_update"] > 0
    assert found["training"]["cost"].keys() == {"relative", "other_seconds", "updates"}
    assert min(found["training"]["cost"].values()) > 0
    scores = found["search"]["validation_bleu"]
    assert set(scores) == {"1", "2"}
    assert scores[str(found["search"]["beam"])] == max(scores.values())
    assert found["model"]["folder_bytes"] > 4 * found["model"]["parameters"]
    run = tmp_path / "runs/data/rposnet_tiny_s1"
    assert not list(run.glob("tmp*"))
    assert "--bf16" in json.loads((run / "train.json").read_text())["attempts"][-1]["command"]
    references = (tmp_path / "data/test.yy").read_text().splitlines()
    for precision in ("float32", "int8"):
        lines = (run / f"test.{precision}.yy").read_text().splitlines()
        of_test_set = found["test_sets"]["test"][precision]
        for metric, other in {"bleu": sacrebleu.corpus_bleu, "chrf": sacrebleu.corpus_chrf}.items():
            assert of_test_set[metric]["score"] == pytest.approx(other(lines, [references]).score, abs=1e-4)
            both = results.unpacked(found["test_sets"]["test"]["segments"][metric])
            statistics = dict(zip(results.PRECISIONS, np.hsplit(both, 2), strict=True))[precision]
            assert len(statistics) == len(references)
            score = get_metric(metric, MetricOptions()).corpus(statistics.sum(0))
            assert score == pytest.approx(of_test_set[metric]["score"], abs=1e-4)
    lines = (run / "test.join5.float32.yy").read_text().splitlines()
    fives = [" ".join(references[start : start + 5]) for start in range(0, len(references), 5)]
    assert len(lines) == len(fives)
    joined = found["joined"]["5"]
    assert joined["bleu"]["score"] == pytest.approx(sacrebleu.corpus_bleu(lines, [fives]).score, abs=1e-4)
    assert len(results.unpacked(joined["segments"])) == len(fives)
    before = path.stat().st_mtime_ns
    again = python(PROGRAM, *words, **place)
    assert again.returncode == 0
    assert "rposnet_tiny_s1 has a result" in again.stderr
    assert Path(path).stat().st_mtime_ns == before
