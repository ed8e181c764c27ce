"""One stage of a run: once, with a record, and not beside itself."""

import json
import os
import re
import shutil
import signal
import sys
from datetime import datetime

import pytest

from posnet_fairseq.runs import command_stage, earlier_records, training
from posnet_fairseq.runs.command_stage import CommandStage, Diverged, do, last_attempt
from posnet_fairseq.runs.run_settings import RunSettings
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.records import Record, changed
from support import commands


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Commands that have ended are noticed at once."""
    monkeypatch.setattr(command_stage, "STEP", 0.02)


def python(code):
    return [sys.executable, "-c", code]


def test_an_error_of_several_lines_is_shown_whole(tmp_path):
    lines = ["score: error: nothing was scored.", "  - a is missing.", "  - b is missing.", "other output"]
    with pytest.raises(UsageError, match=r"nothing was scored\.\n  - a is missing\.\n  - b is missing\. \(log"):
        do(CommandStage(tmp_path, "score", python(f"import sys; print({chr(10).join(lines)!r}); sys.exit(2)")))


def test_stage_is_done_once(tmp_path):
    made = tmp_path / "made"
    command = [*python(f"open({str(made)!r}, 'a').write('x'); print('hello')"), "caf\udce9"]  # a name that is not UTF-8
    stage = CommandStage(tmp_path / "run", "work", command, made)
    assert not stage.is_done()
    do(stage)
    do(stage)
    assert stage.is_done()
    assert made.read_text() == "x"
    assert last_attempt(stage.log) == "hello\n"
    made.unlink()
    assert not stage.is_done()
    do(stage)
    assert [attempt["outcome"] for attempt in Record(tmp_path / "run/work.json").content["attempts"]] == [
        "finished"
    ] * 2


@pytest.mark.parametrize("given", [None, "glibc.malloc.check=0"])
def test_commands_have_memory_in_large_pages_and_logs_in_utf8_in_any_locale(tmp_path, monkeypatch, given):
    variables = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": None}
    for name, value in (variables | {"GLIBC_TUNABLES": given}).items():
        monkeypatch.delenv(name, raising=False)
        if value:
            monkeypatch.setenv(name, value)
    stage = CommandStage(tmp_path, "work", python("import os; print('\\xe9 \\udce9', os.environ['GLIBC_TUNABLES'])"))
    do(stage)
    assert last_attempt(stage.log) == f"é \\udce9 {given or 'glibc.malloc.hugetlb=1'}\n"


def test_commands_get_signals_as_from_a_shell(tmp_path):
    """Python ignores some, and what it starts would, too."""
    stage = CommandStage(tmp_path, "work", ["bash", "-c", "grep -E 'SigIgn|SigBlk' /proc/self/status"])
    do(stage)
    ignored = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1
    blocked, ignoring = (int(line.split()[1], 16) for line in last_attempt(stage.log).splitlines())
    assert not blocked & 1 << signal.SIGINT - 1
    assert not ignoring & ignored


def test_a_program_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match=r"exit code 1\. no-such-program: No such file or directory\. Is it installed"):
        do(CommandStage(tmp_path, "work", ["no-such-program"]))


def test_a_task_is_done_in_this_process(tmp_path):
    made, fails = tmp_path / "made", [ValueError("no luck"), InterruptedError("stopped")]

    def task():
        if fails:
            raise fails.pop(0)
        made.touch()
        return ["one", "two"]

    stage = CommandStage(tmp_path, "work", ["posnet-work"], made, task=task)
    for kind in (ValueError, InterruptedError):
        with pytest.raises(kind):
            do(stage)
        assert not stage.is_done()
    assert not do(stage)
    assert do(stage)
    assert last_attempt(stage.log) == "one\ntwo\n"
    outcomes = [attempt["outcome"] for attempt in stage.record.content["attempts"]]
    assert outcomes == ["ValueError: no luck", "interrupted", "finished"]


LEAVES = "from posnet_fairseq.shared.results import leave_result; leave_result({})"


def test_what_a_command_leaves_is_recorded(tmp_path):
    stage = CommandStage(tmp_path / "run", "work", python(LEAVES.format("speed=1.5")))
    do(stage)
    assert stage.record.content["attempts"][-1]["result"] == {"speed": 1.5}
    stage.record.path.unlink()
    (stage.run / ".work.result").write_text('{"speed": 1}')  # left by an attempt that was killed
    do(CommandStage(tmp_path / "run", "work", python("pass")))
    assert "result" not in stage.record.content["attempts"][-1]
    assert sorted(path.name for path in stage.run.iterdir()) == [".lock", "work.json", "work.log"]
    assert commands.python(LEAVES.format("a=1"), cwd=tmp_path).returncode == 0, "nobody waits for it"


# fairseq-train, whose gradients are NaN.
DIVERGES = """
import sys
from posnet_fairseq.shared.failures import install_hook
sys.argv[0] = "fairseq-train"
install_hook()
raise {}("Minimum loss scale reached (0.0001).")
"""


@pytest.mark.parametrize(("error", "kind"), [("FloatingPointError", Diverged), ("MemoryError", UsageError)])
def test_a_training_that_has_diverged_is_told_from_others(tmp_path, error, kind):
    with pytest.raises(UsageError, match="exit code 2") as raised:
        do(CommandStage(tmp_path, "train", python(DIVERGES.format(error))))
    assert type(raised.value) is kind


MEMORY = """
from pathlib import Path
from posnet_fairseq.runs.command_stage import CommandStage, do
block = b"x" * (300 << 20)
del block
do(CommandStage(Path("run"), "work", ["true"]))
"""


def test_memory_that_another_process_had_is_not_the_commands(tmp_path):
    assert commands.python(MEMORY, cwd=tmp_path).returncode == 0
    (attempt,) = Record(tmp_path / "run/work.json").content["attempts"]
    assert attempt["peak_memory_bytes"] < 200 << 20


# As version 0.3.0 has recorded a training with --options='--dropout=0 --lr 3e-3 --optimizer adam --num-workers 0'.
TRAINING = {
    **{"argument 1": "DATA", "--user-dir": "posnet_fairseq", "--arch": "rposnet_tiny", "--seed": "1"},
    **{"--share-all-embeddings": "", "--criterion": "label_smoothed_cross_entropy", "--label-smoothing": "0.1"},
    **{"--optimizer": "adam", "--adam-betas": "(0.9,0.98)", "--adam-eps": "1e-9", "--lr": "3e-3"},
    **{"--lr-scheduler": "inverse_sqrt", "--warmup-updates": "4", "--best-checkpoint-metric": "ppl"},
    **{"--max-update": "8", "--max-source-positions": "32", "--max-target-positions": "32"},
    **{"--skip-invalid-size-inputs-valid-test": "", "--required-batch-size-multiple": "1"},
    **{"--save-interval-updates": "2", "--no-epoch-checkpoints": "", "--save-dir": "RUN/checkpoints"},
    **{"--log-format": "json", "--log-interval": "1", "--encoder-self-mixer": "shaw", "--dropout=0": ""},
    **{"tokens an update": "400", "dataset": "k"},
}
OTHERS = {
    "average": {"argument 1": "RUN/checkpoints", "--num": "2", "--out": "RUN/averaged.pt", "dataset": "k"},
    "translate": {
        **{"argument 1": "RUN/precomputed.pt", "--data": "DATA", "--input": "DATA/test.xx", "--output": "RUN/test.yy"},
        **{"--beam": "2", "--lenpen": "1", "--max-len-a": "0", "--max-len-b": "8", "--on-long": "truncate"},
        "dataset": "k",
    },
    "precompute": {"argument 1": "RUN/averaged.pt", "--out": "RUN/precomputed.pt", "--or-copy": "", "dataset": "k"},
    "cost": {"-W": "ignore", "-m": "posnet_fairseq.studies.update_cost", "--arch": "rposnet_tiny", "dataset": "k"},
    "score": {"--source": "DATA/test.xx", "--metrics": "bleu chrf", "--out": "RUN/report", "dataset": "k"},
}


def settings_of(**more):
    texts = {"data": "none", "size": "tiny", "updates": "8", "interval": "2", "average": "2", "warmup": "4"}
    texts |= {"tokens": "400", "max_positions": "32", "beam": "2", "max_len_a": "0", "max_len_b": "8"}
    texts |= {"options": "--lr 3e-3 --optimizer=adam --dropout 0 --num-workers 4", "encoder_self_mixer": "shaw"}
    return RunSettings.parsed(texts | more)


def record_of_before(folder, stage, settings):
    attempt = {"command": ["x"], "started": "2026-11-20T10:00:00+00:00", "commit": "", "versions": {}, "machine": {}}
    attempt |= {"outcome": "finished", "seconds": 3.0, "cpu_seconds": 1.0, "peak_memory_bytes": 1, "load_average": 0.1}
    record = {"settings": settings, "attempts": [attempt], "finished": True, "seconds": 3.0}
    (folder / f"{stage}.json").write_text(json.dumps(record, indent=1))


def stage_now(folder, stage, **more):
    settings = settings_of(**more).recorded(stage) | {"dataset": "k"}
    return CommandStage(folder, stage, [], settings=settings, growing=training.GROWING if stage == "train" else ())


@pytest.mark.parametrize("stage", ["train", *OTHERS])
def test_a_stage_that_an_earlier_version_has_finished_is_done(tmp_path, stage):
    record_of_before(tmp_path, stage, OTHERS.get(stage, TRAINING))
    assert stage_now(tmp_path, stage).is_done()
    assert stage_now(tmp_path, stage).record.seconds == 3.0


@pytest.mark.parametrize(
    ("stage", "more", "difference"),
    [
        ("train", {"warmup": "5"}, "--warmup: 4 then, 5 now"),
        ("train", {"updates": "6"}, "--updates: 8 then, 6 now"),
        ("train", {"options": "--dropout 0 --lr 3e-3 --gate none"}, "--gate: not given then, none now"),
        ("train", {"options": "--dropout 0 --lr 3e-3 --optimizer sgd"}, "--optimizer: adam then, sgd now"),
        ("train", {"options": "--dropout 0"}, "--lr: 3e-3 then, 2e-3 now"),
        ("train", {"mixer": "shaw"}, "--mixer: rposnet then, shaw now"),
        ("average", {"average": "3"}, "--average: 2 then, 3 now"),
        ("translate", {"beam": "3"}, "--beam: 2 then, 3 now"),
        ("score", {"metrics": "bleu"}, "--metrics: bleu,chrf then, bleu now"),
    ],
)
def test_other_settings_than_those_of_an_earlier_version_are_refused(tmp_path, stage, more, difference):
    record_of_before(tmp_path, stage, OTHERS.get(stage, TRAINING))
    with pytest.raises(UsageError, match=rf"finished with other options \({re.escape(difference)}\)\."):
        stage_now(tmp_path, stage, **more).is_done()


def test_a_training_of_an_earlier_version_goes_on_for_longer(tmp_path):
    record_of_before(tmp_path, "train", TRAINING)
    longer = stage_now(tmp_path, "train", updates="16", interval="4")
    assert longer.grows
    assert not longer.is_done()


def test_figures_in_logs_of_earlier_versions(tmp_path):
    log = tmp_path / "eval.log"
    log.write_text("2026-01-01 | INFO | fairseq_cli.eval_lm | Loss (base 2): 5.8400, Perplexity: 57.28\n")
    assert earlier_records.perplexity(log) == 57.28
    said = "posnet-translate: {} in 1.5 s{}\n"
    assert earlier_records.decoding_speed(said.format("3 sentences", ", 2.5 sentences and 9.0 tokens a second")) == 2.5
    assert earlier_records.decoding_speed(said.format("0 sentences", "")) is None


def test_a_stage_goes_on_when_a_number_has_grown(tmp_path):
    def stage(number, interval=1, **more):
        settings = {"--max": number, "--interval": interval, **more}
        return CommandStage(tmp_path, "work", python("print('x')"), settings=settings, growing=("--max", "--interval"))

    do(stage(9))
    assert stage(9).is_done()
    assert not stage(10).is_done()
    with pytest.raises(UsageError, match="--max: 9 then, 8 now"):
        stage(8).is_done()
    with pytest.raises(UsageError, match=r"\(--new: not given then, given now\)"):
        stage(10, **{"--new": ""}).is_done()
    with pytest.raises(UsageError, match="--interval: 1 then, 2 now"):
        stage(9, interval=2).is_done()
    do(stage(10, interval=2))
    assert stage(10, interval=2).is_done()
    record = Record(tmp_path / "work.json")
    of_each = [attempt["seconds"] for attempt in record.content["attempts"]]
    assert len(of_each) == 2
    assert record.content["seconds"] == pytest.approx(sum(of_each))
    record.begin({"--max": 11})
    assert not Record(tmp_path / "work.json").finished  # it was killed


def test_a_number_is_the_same_however_it_is_written(tmp_path):
    def stage(rate):
        return CommandStage(tmp_path, "work", python("print('x')"), settings={"--lr": rate})

    do(stage("2e-3"))
    assert stage("0.002").is_done()
    with pytest.raises(UsageError, match=r"--lr: 2e-3 then, 0\.02 now"):
        stage("0.02").is_done()
    assert changed({"dataset": "1e999"}, {"dataset": "2e888"}) == ["dataset"], "hashes are no numbers"


def test_seconds_are_those_of_all_attempts(tmp_path):
    """One that was killed lasted until it wrote its last line."""
    record = Record(tmp_path / "work.json")
    record.begin({})
    start = datetime.fromisoformat(record.content["attempts"][0]["started"]).timestamp()
    log = tmp_path / "work.log"
    log.touch()
    os.utime(log, (start + 50, start + 50))
    assert Record(record.path).seconds == 50
    again = Record(record.path)
    again.begin({})
    again.end("finished", seconds=7.5)
    assert Record(record.path).content["seconds"] == 57.5


def test_an_interrupted_stage_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(command_stage, "STEP", 0.2)
    stage = CommandStage(tmp_path, "work", python("import time; time.sleep(600)"))

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        do(stage, watch=lambda bar: interrupt())
    (attempt,) = Record(tmp_path / "work.json").content["attempts"]
    assert attempt["outcome"] == "interrupted"
    assert attempt["seconds"] > 0
    assert attempt["peak_memory_bytes"] > 2**20


@pytest.fixture
def made_of(tmp_path):
    """A stage that was done, its source, and one with other options."""
    source, made = tmp_path / "source", tmp_path / "made"
    source.touch()
    stages = (CommandStage(tmp_path / "run", "work", ["touch", str(made)], made, source, {"n": n}) for n in (1, 2))
    stage, other = stages
    do(stage)
    return stage, other


def test_what_is_made_of_something_that_has_changed_is_done_again(made_of):
    stage, other = made_of
    assert stage.is_done()
    with pytest.raises(UsageError, match="finished with other options"):
        other.is_done()
    stage.source.write_text("other")
    assert not stage.is_done()
    do(other)
    assert other.is_done()


def test_what_is_made_of_a_text_that_has_changed_is_done_again(tmp_path):
    (tmp_path / "data").mkdir()
    text, made, source = (tmp_path / name for name in ("data/made", "made", "source"))
    for path in (text, source):
        path.write_text("one\n")
    stage = CommandStage(tmp_path / "run", "work", ["touch", str(made)], made, source, texts=[text])
    do(stage)
    assert stage.is_done()
    shutil.copyfile(source, text)  # another date, the same content
    assert stage.is_done()
    text.write_text("two\n")
    assert not stage.is_done()
    do(stage)
    assert stage.is_done()
    record = stage.record
    del record.content["texts"]  # as of an earlier version
    record.write()
    assert stage.is_done()


@pytest.mark.parametrize("difference", [-1, 1])
@pytest.mark.parametrize("version", ["this", "an earlier"])
def test_clocks_that_go_back(made_of, difference, version):
    """Files then seem to be older than what they were made of. Earlier versions noted nothing else."""
    stage, _ = made_of
    if version == "an earlier":
        record = stage.record
        del record.content["files"]
        record.write()
    os.utime(stage.source, ns=(stage.made.stat().st_mtime_ns + difference,) * 2)
    assert stage.is_done() is (version == "this" or difference < 0)


def test_failure_says_what_the_command_said_and_is_done_again(tmp_path):
    flag = tmp_path / "flag"
    stage = CommandStage(
        tmp_path, "work", ["bash", "-c", f"echo x: error: no luck; echo more; [ -e '{flag}' ] || exit 3"]
    )
    with pytest.raises(UsageError, match=r"work of .*: exit code 3. no luck \(log: .*work.log\)"):
        do(stage)
    assert not stage.is_done()
    flag.touch()
    do(stage)
    assert stage.is_done()


def test_what_is_refused_before_it_begins_leaves_no_folder(tmp_path):
    def refuse():
        raise UsageError("no.")

    with pytest.raises(UsageError, match=r"^no\.$"):
        do(CommandStage(tmp_path / "run", "work", python("pass"), prepare=refuse))
    assert not (tmp_path / "run").exists()


def test_command_that_makes_nothing_has_failed(tmp_path):
    with pytest.raises(UsageError, match="made nothing"):
        do(CommandStage(tmp_path, "work", python("pass"), tmp_path / "made"))


def test_nobody_else_works_in_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(command_stage, "PATIENCE", 0.2)
    end = tmp_path / "end"
    refused = []

    def second():
        with pytest.raises(UsageError, match="another process works in this folder"):
            do(CommandStage(tmp_path, "other", python("pass")))
        refused.append(True)
        end.touch()

    work = CommandStage(tmp_path, "work", ["bash", "-c", f"until [ -e '{end}' ]; do sleep 0.1; done"])
    work.prepare = second
    do(work)
    assert refused
    do(CommandStage(tmp_path, "other", python("pass")))


@pytest.mark.parametrize("text", [b'{"settings": {}, "attempts": [1], "finished": true}', None])
def test_damaged_record_is_one_sentence(tmp_path, text):
    path = tmp_path / "work.json"
    path.mkdir() if text is None else path.write_bytes(text)
    said = r"work.json is no record of a stage: .* Move it away and run again" if text is not None else "is a directory"
    with pytest.raises(UsageError, match=said):
        Record(path)
