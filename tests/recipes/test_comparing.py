"""Comparisons: lists of systems, shares of a machine, figures beside scores."""

import functools
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from posnet_fairseq.costs.mixer_tables import option_rows
from posnet_fairseq.inference.checkpoints import read_checkpoint
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.runs import comparison, devices, jobs, single_run
from posnet_fairseq.runs.compare import ComparisonSettings, baselines_of, compare, job
from posnet_fairseq.runs.comparison import Model
from posnet_fairseq.runs.systems import System, chosen, find_list, read_systems
from posnet_fairseq.runs.training import training_speed
from posnet_fairseq.shared.errors import UsageError
from support.checkpoints import checkpoint, fairseqs_model, weights
from support.commands import ROOT
from support.signals import default_signals, is_alive, wait_until
from support.training_log import training_log

LISTS = sorted((ROOT / "recipes/systems").glob("*.txt"))


@pytest.fixture
def settings(tmp_path):
    """A function that makes settings of a comparison."""
    places = {"data": str(tmp_path / "data"), "runs": str(tmp_path / "runs"), "size": "tiny"}
    return lambda **texts: ComparisonSettings.parsed(places | texts)


def test_file_of_systems(tmp_path):
    path = tmp_path / "my list.txt"
    path.write_text("# a remark\n\none shaw\n  two   shaw  --shaw-values --gate gelu   # another\n")
    name, systems = chosen(path, "")
    assert name == "my list"
    assert systems == [System("one", "shaw"), System("two", "shaw", "--shaw-values --gate gelu")]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rposnet\n", "system rposnet: mixer (none): choose one of"),
        ("a rposnet\n\na shaw\n", "'a': this name is there twice"),
        ("a rposnt\n", "Did you mean rposnet"),
        ("a attention\n", "Did you mean transformer_pos?"),
        ("a shaw --gate\0none\n", "has a NUL byte in line 1"),
    ],
)
def test_bad_list_is_one_sentence(tmp_path, text, sentence):
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(UsageError, match=re.escape(sentence)):
        read_systems(tmp_path / "list.txt")


def test_mixers_or_a_file():
    assert chosen(None, "shaw rposnet") == ("shaw+rposnet", [System("shaw", "shaw"), System("rposnet", "rposnet")])
    for path, mixers in ((None, " "), (LISTS[0], "shaw")):
        with pytest.raises(UsageError, match="give one file of systems with a line at least"):
            chosen(path, mixers)


def test_lists_that_come_with_posnet_have_names(monkeypatch, tmp_path):
    assert find_list("table-4").name == "table-4.txt"
    (tmp_path / "mixers").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_list("mixers").name == "mixers.txt", "a directory is no list"
    assert find_list(str(LISTS[0])) == LISTS[0]


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.name)
def test_ready_made_lists_have_options_that_their_mixers_read(path):
    names = {get_mixer(name).arch: name for name in mixer_names()}
    places = {"--encoder-self-mixer", "--decoder-self-mixer", "--cross-mixer"}
    for system in read_systems(path):
        known = {option for option, *_ in option_rows(get_mixer(names[system.mixer]))} | places
        assert set(re.findall(r"--\S+", system.options)) <= known, system


def test_lists_share_the_runs_of_systems_with_the_same_name():
    """Comparisons on one dataset train such a system once: its runs have one folder."""
    systems = {system for path in LISTS for system in read_systems(path)}
    assert len(systems) == len({system.name for system in systems})


def test_lists_have_the_rows_of_the_papers_tables():
    assert {path.stem: len(read_systems(path)) for path in LISTS} == {
        "mixers": 19,
        "tables-2-3": 9,
        "table-4": 8,
        "table-5": 5,
        "table-6": 10,
    }


@pytest.fixture
def shares(monkeypatch, settings):
    """A function that divides a machine among jobs."""

    def divide(jobs, there, visible=None, **texts):
        monkeypatch.setattr(devices, "gpus", lambda: (there, True))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        return devices.shares(jobs, settings(**texts))

    return divide


@pytest.mark.parametrize(
    ("number", "visible", "count", "expected"),
    [
        (3, None, 2, ["0", "1", "0"]),
        (5, "4", 1, ["4"] * 5),
        (1, "4,5,6,7", 4, ["4,5,6,7"]),
        (2, "4,5,6,7", 4, ["4,5", "6,7"]),
        (3, "4,5,6,7", 4, ["4", "5", "6"]),
        (2, None, 2, ["0", "1"]),
        (2, "GPU-8932f937, GPU-aa", 2, ["GPU-8932f937", "GPU-aa"]),
        (2, "2,0,-1,1", 2, ["2", "0"]),  # CUDA sees no more than these
        (2, "0,1,2,9", 3, ["0", "1"]),
    ],
)
def test_gpus_are_shared_equally_by_the_names_that_they_were_given(shares, number, visible, count, expected):
    found = shares(number, count, visible)
    assert [share.environment["CUDA_VISIBLE_DEVICES"] for share in found] == expected
    assert {share.gpus for share in found} == {expected[0].count(",") + 1}


def test_no_more_gpus_are_shared_than_are_meant_and_there(shares):
    assert [share.environment["CUDA_VISIBLE_DEVICES"] for share in shares(2, 4, gpus="1")] == ["0", "0"]
    with pytest.raises(UsageError, match="--gpus 5: this machine has 4 GPUs"):
        shares(1, 4, gpus="5")
    with pytest.raises(UsageError, match="--gpus 2: this machine has 0 GPUs"):
        shares(2, 0, gpus="2")
    assert len(shares(2, 0, gpus="2", dry_run="true")) == 2  # for another machine
    with pytest.raises(UsageError, match="--precision fp16: CPUs train in fp32 or bf16"):
        shares(2, 0, precision="fp16")


def test_cores_are_shared(monkeypatch, shares):
    monkeypatch.setattr(devices, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert shares(2, 0, cpus="2") == [devices.Share({"OMP_NUM_THREADS": "2"})] * 2


@pytest.mark.parametrize(
    ("names", "given", "expected"), [("a b c", "", ["a", "b"]), ("a b", "", ["a"]), ("a b c", "c a", ["c", "a"])]
)
def test_baselines(settings, names, given, expected):
    assert baselines_of([System(name, "shaw") for name in names.split()], settings(baselines=given)) == expected
    for other in ("d", "a b c", "a a"):
        with pytest.raises(UsageError, match=f"--baselines {other}: name one or two of {', '.join(names.split())}"):
            baselines_of([System(name, "shaw") for name in names.split()], settings(baselines=other))


def test_figures_of_a_run(tmp_path):
    (tmp_path / "train.log").write_text(training_log(end="\nhalf a line"))
    attempts = [{"peak_memory_bytes": bytes} for bytes in (5, 9, 7)]
    (tmp_path / "train.json").write_text(json.dumps({"settings": {}, "attempts": attempts, "finished": True}))
    assert training_speed(tmp_path / "train.log") == 1010.5
    assert comparison.peak_memory(tmp_path) == 9
    log = training_log(gpu=True)
    other = (
        log.replace("80.000", "24.000").replace('"gb_free": 6', '"gb_free": 1').replace('"gb_free": 7', '"gb_free": 2')
    )
    (tmp_path / "train.log").write_text(f"$ fairseq-train\n{log}$ fairseq-train\n{other}")  # went on with another GPU
    assert comparison.peak_memory(tmp_path) == (80 - 66) * 2**30


def test_decoding_speed_is_that_of_the_last_attempt_of_any_version(tmp_path):
    rate = "posnet-translate: 3 sentences in 1.5 s, {} sentences and 9.0 tokens a second\n"
    (tmp_path / "translate.log").write_text("".join(f"$ posnet-translate\nnote\n{rate.format(r)}" for r in (1.0, 2.5)))
    for attempt, speed in (({}, 2.5), ({"result": {"sentences_per_second": 4.5}}, 4.5), ({"result": {}}, None)):
        record = {"settings": {}, "attempts": [attempt], "finished": True}
        (tmp_path / "translate.json").write_text(json.dumps(record))
        assert comparison.decoding_speed(tmp_path) == speed


def test_what_models_differ_in_besides_the_mixer_is_said(tmp_path):
    systems = {
        "base": ("attention", {}),
        "shaw": ("shaw", {}),
        "rposnet": ("rposnet", {}),
        "arposnet": ("arposnet", {}),
        "alike": ("rposnet", {"gate": "none", "position_embedding": "sinusoidal", "clip_distance": 2}),
        "fouriernet": ("fouriernet", {}),
        "cross": ("attention", {"cross_mixer": "relative", "dropout": 0.1}),
        "hybrid": ("attention", {"encoder_self_mixer": "lightconv,attention", "decoder_gate": "gelu"}),
        "same": ("attention", {"encoder_self_mixer": "shaw,shaw", "decoder_self_mixer": "shaw"}),
    }
    models = {
        name: Model.of(checkpoint(tmp_path / f"{name}.pt", mixer, **more)) for name, (mixer, more) in systems.items()
    }
    assert comparison.differences({name: model.options for name, model in models.items()}, "base") == [
        "Other differences from base: rposnet and arposnet have --gate gelu (base: none) and "
        "--position-embedding learned (base: sinusoidal).",
        "Other differences from base: fouriernet has --decoder-self-mixer attention (base: as the encoder).",
        "Other differences from base: cross has --attention-dropout 0.1 (base: 0.0), --cross-mixer relative "
        "(base: attention) and --dropout 0.1 (base: 0.0).",
        "Other differences from base: hybrid has --decoder-self-mixer attention (base: as the encoder), "
        "--encoder-self-mixer lightconv+attention (base: the same in all layers) and --gate glu+none in the encoder "
        "and gelu in the decoder (base: none).",
    ]
    assert (models["hybrid"].gate, models["rposnet"].gate) == (
        "glu+none in the encoder and gelu in the decoder",
        "gelu",
    )


def test_parameters_are_those_of_the_model_and_no_other_tensors(tmp_path):
    path = checkpoint(tmp_path / "precomputed.pt", "shaw", cross_mixer="rposnet", length_ratio="1.25")
    kinds = {name: tensor.dtype for name, tensor in weights(path).items() if not tensor.is_floating_point()}
    assert kinds.keys() == {"mixers_version", "decoder.length_ratio_version"}
    model = fairseqs_model(read_checkpoint(path))
    assert Model.of(path).parameters == sum(parameter.numel() for parameter in model.parameters())


@pytest.fixture
def pool(monkeypatch, settings, tmp_path):
    """Of three systems, one job at a time. In place of a run: it fails for one system, and leaves a file for each."""

    def run(settings, work):
        work.report.say("something that all say")
        (tmp_path / "data" / f"{settings.name}.{settings.seed}").touch()
        if settings.name == "b":
            raise UsageError("b/train.json is no record.")

    (tmp_path / "data").mkdir()
    monkeypatch.setattr(jobs, "run_stages", run)
    monkeypatch.setattr(jobs, "check_trainings", lambda runs: {})
    monkeypatch.setattr(jobs, "STEP", 0.05)
    todo = [job(System(name, "shaw"), 1, settings()) for name in "abc"]
    for each in todo:
        each.run.mkdir(parents=True)
    return functools.partial(jobs.do_all, todo, [devices.Share({})])


def begun(folder):
    return {path.name for path in folder.glob("data/?.1")}


def test_an_interrupted_comparison_says_how_to_go_on(pool, monkeypatch, capfd):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pool()
    said = capfd.readouterr().err.splitlines()
    assert said[-1] == "interrupted; progress is saved. Run the same command to continue."


@pytest.mark.parametrize("damage", [b"{", None])
def test_damaged_record_of_a_run_does_not_hurt_the_others(pool, tmp_path, damage):
    record = tmp_path / "runs/data/b_tiny_s1/train.json"
    record.mkdir() if damage is None else record.write_bytes(damage)
    with pytest.raises(UsageError, match=r"^1 of 3 runs failed \(b_tiny_s1: b/train.json is no record\)\. The others"):
        pool()
    assert begun(tmp_path) == {"a.1", "b.1", "c.1"}


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(28, "No space left"), "the disk is full"),
        (RuntimeError("oh"), "RuntimeError: oh"),
        (SystemExit(3), "a command ended with exit code 3, see above"),
    ],
)
def test_error_of_a_job_is_told_at_the_end_unless_it_is_tolerated(pool, tmp_path, monkeypatch, capfd, error, sentence):
    run = jobs.run_stages

    def fail(settings, work):
        if settings.name == "a":
            raise error
        return run(settings, work)

    monkeypatch.setattr(jobs, "run_stages", fail)
    with pytest.raises(UsageError) as raised:
        pool()
    assert f"2 of 3 runs failed (a_tiny_s1: {sentence}" in str(raised.value)
    assert "; b_tiny_s1: b/train.json is no record)." in str(raised.value)
    assert begun(tmp_path) == {"b.1", "c.1"}
    assert capfd.readouterr().err.count("something that all say") == 1
    assert {run.name for run in pool((UsageError, type(error)))} == {"a", "b"}


def refused(monkeypatch, tmp_path, **texts):
    """What a comparison says that does not begin."""
    monkeypatch.setattr(devices, "gpus", lambda: (0, False))
    monkeypatch.setattr(jobs, "run_stages", lambda *_: pytest.fail("it began"))
    monkeypatch.setattr(single_run, "run_or_exit", lambda *_: pytest.fail("it began"))
    monkeypatch.setattr(single_run, "elsewhere", lambda function, item: function(item))
    given = {"data": "data", "runs": "runs", "dataset": "iwslt14.de-en", "size": "tiny"}
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as raised:
        compare(ComparisonSettings.parsed(given | texts))
    return str(raised.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"seeds": "1 two"}, "--seeds two: give a whole number"),
        ({"options": "--no-such-option"}, "shaw: fairseq-train: unrecognized arguments: --no-such-option"),
        (
            {"options": "--compile --offload-activations"},
            "shaw: --compile with --offload-activations",
        ),
        ({"options": "--help", "dry_run": "1"}, "shaw: fairseq-train: its options were not understood"),
    ],
)
def test_comparison_that_cannot_begin_is_one_sentence(monkeypatch, tmp_path, given, sentence):
    assert sentence in refused(monkeypatch, tmp_path, **{"mixers": "shaw rposnet"} | given)
    assert not list(tmp_path.iterdir())


def test_options_of_the_last_system_are_looked_at_before_the_first_begins(monkeypatch, tmp_path):
    systems = tmp_path / "systems.txt"
    systems.write_text("first shaw\nlast rposnet --gate foo\n")
    said = refused(monkeypatch, tmp_path, systems=str(systems))
    assert "last: fairseq-train: argument --gate: invalid choice: 'foo'" in said
    assert list(tmp_path.iterdir()) == [systems]


# What posnet-run does with a command that speaks for itself, and with one of a stage.
ATTACHED = "run_attached(['bash', '-c', 'echo $$; exec sleep 100000'])"
STAGE = "do(CommandStage(Path('run'), 'work', ['bash', '-c', 'echo $$; exec sleep 100000']))"
POOL = """
@dataclasses.dataclass(frozen=True)
class Settings:
    run: Path = Path('run')
    updates: int = 1
    gpus: None = None
    system: str = 'a'

command = ['bash', '-c', 'echo $$; exec sleep 100000']
jobs.is_trained = lambda settings: True
jobs.run_stages = lambda settings, work: do(CommandStage(settings.run, 'work', command), work)
jobs.do_all([Settings()], [Share({})])
"""
PROGRAM = """
import dataclasses
from pathlib import Path
from posnet_fairseq.cli.run import end_by_signals
from posnet_fairseq.runs import jobs
from posnet_fairseq.runs.command_stage import CommandStage, do
from posnet_fairseq.runs.devices import Share
from posnet_fairseq.shared.processes import run_attached
end_by_signals()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("work", [ATTACHED, STAGE, POOL])
def test_commands_end_with_the_recipe(tmp_path, number, work):
    script = PROGRAM + work.replace("echo $$;", "echo $$ >pid;")
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, preexec_fn=default_signals) as recipe:
        note = tmp_path / "pid"
        wait_until(lambda: note.exists() and note.read_text().strip(), "it never began")
        command = int(note.read_text())
        # While Python still forks, it drops the exception of an interrupt.
        state = Path(f"/proc/{recipe.pid}/stat")
        wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "S", "it never waited for the command")
        recipe.send_signal(number)
    assert recipe.returncode in {-number, 128 + number}
    wait_until(lambda: not is_alive(command), "it lives on")


def test_reports_of_other_systems_are_kept(tmp_path):
    """Lists of one name in different folders, such as the tuned.txt of posnet-run tune."""
    (tmp_path / "comparison.yaml").write_text("systems: {a: My Transformer, b: b, c: c}\n")
    with pytest.raises(
        UsageError, match=r"the report beside it compares a and c, too\. Rename its folder to keep them"
    ):
        comparison.ComparisonFolder(tmp_path, tmp_path, {"b": [], "d": []}).check()
    comparison.ComparisonFolder(tmp_path, tmp_path, {system: [] for system in "abcd"}).check()


def test_equal_labels_are_refused_before_the_training(tmp_path):
    (tmp_path / "comparison.yaml").write_text("systems: {a: one, b: one}\n")
    with pytest.raises(UsageError, match=r"comparison.yaml: systems one and one: give each a label of its own"):
        comparison.ComparisonFolder(tmp_path, tmp_path, {"a": [], "b": []}).check()
