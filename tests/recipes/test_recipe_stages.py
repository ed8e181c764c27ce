"""One stage of a run: once, with a record, and not beside itself."""

import json
import os
import sys
from datetime import datetime

import pytest

from posnet_fairseq.runs import command_stage
from posnet_fairseq.runs.command_stage import CommandStage, do, last_attempt, settings_of
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.records import Record


def python(code):
    return [sys.executable, "-c", code]


def test_options_are_settings_but_for_those_that_change_no_result():
    command = "fairseq-train data --lr 1e-3 --betas (0.9,0.98) --cpu --update-freq 8 --share --max-tokens 300 --seed -1"
    expected = {
        "argument 1": "data",
        "--lr": "1e-3",
        "--betas": "(0.9,0.98)",
        "--share": "",
        "--seed": "-1",
        "more": "x=y",
    }
    assert settings_of(command.split(), {"more": "x=y"}) == expected
    command = ["program", "/a b/run", "--out", "/a b/run/file", "--system", "x=/a b/run/test", "--other", "/a b/runs"]
    expected = {"argument 1": "RUN", "--out": "RUN/file", "--system": "x=RUN/test", "--other": "/a b/runs"}
    assert settings_of(command, places={"RUN": "/a b/run"}) == expected


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


def test_logs_are_utf8_in_any_locale(tmp_path, monkeypatch):
    for name, value in {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTHONIOENCODING", raising=False)
    stage = CommandStage(tmp_path, "work", python("print('\\xe9 \\udce9')"))
    do(stage)
    assert last_attempt(stage.log) == "é \\udce9\n"


@pytest.mark.parametrize("given", [None, "glibc.malloc.check=0"])
def test_commands_have_memory_in_large_pages_unless_it_is_set_otherwise(tmp_path, monkeypatch, given):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if given:
        monkeypatch.setenv("GLIBC_TUNABLES", given)
    stage = CommandStage(tmp_path, "work", python("import os; print(os.environ['GLIBC_TUNABLES'])"))
    do(stage)
    assert last_attempt(stage.log) == f"{given or 'glibc.malloc.hugetlb=1'}\n"


def test_a_record_of_version_0_2_0_is_as_good(tmp_path):
    attempt = {"command": ["x"], "started": "2026-11-20T10:00:00+00:00", "commit": "", "versions": {}, "machine": {}}
    attempt |= {"outcome": "finished", "seconds": 3.0, "cpu_seconds": 1.0, "peak_memory_bytes": 1, "load_average": 0.1}
    record = {"settings": {"--lr": "1"}, "attempts": [attempt], "finished": True, "seconds": 3.0}
    (tmp_path / "work.json").write_text(json.dumps(record, indent=1))
    stage = CommandStage(tmp_path, "work", ["program", "--lr", "1"])
    assert stage.is_done()
    assert stage.record.seconds == 3.0


def test_a_stage_goes_on_when_a_number_has_grown(tmp_path):
    def stage(number, *more, interval="1"):
        command = [*python("print('x')"), "--max", number, "--interval", interval, *more]
        return CommandStage(tmp_path, "work", command, growing=("--max", "--interval"))

    do(stage("9"))
    assert stage("9").is_done()
    assert not stage("10").is_done()
    with pytest.raises(UsageError, match="--max: 9 then, 8 now"):
        stage("8").is_done()
    with pytest.raises(UsageError, match=r"\(--new: not given then, given now\)"):
        stage("10", "--new").is_done()
    with pytest.raises(UsageError, match="--interval: 1 then, 2 now"):
        stage("9", interval="2").is_done()
    do(stage("10", interval="2"))
    assert stage("10", interval="2").is_done()
    record = Record(tmp_path / "work.json")
    of_each = [attempt["seconds"] for attempt in record.content["attempts"]]
    assert len(of_each) == 2
    assert record.content["seconds"] == pytest.approx(sum(of_each))
    record.begin({"--max": "11"})
    assert not Record(tmp_path / "work.json").finished  # it was killed


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


def test_an_interrupted_stage_is_measured(tmp_path):
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
    stage = CommandStage(tmp_path / "run", "work", ["touch", str(made)], made, source)
    do(stage)
    return stage, CommandStage(tmp_path / "run", "work", ["touch", "--no-create", str(made)], made, source)


def test_what_is_made_of_something_that_has_changed_is_done_again(made_of):
    stage, other = made_of
    assert stage.is_done()
    with pytest.raises(UsageError, match="finished with other options"):
        other.is_done()
    stage.source.write_text("other")
    assert not stage.is_done()
    do(other)
    assert other.is_done()


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


@pytest.mark.parametrize("text", [b"{", b'{"settings": {}, "attempts": [1], "finished": true}', None])
def test_damaged_record_is_one_sentence(tmp_path, text):
    path = tmp_path / "work.json"
    path.mkdir() if text is None else path.write_bytes(text)
    said = r"work.json is no record of a stage: .* Move it away and run again" if text is not None else "is a directory"
    with pytest.raises(UsageError, match=said):
        Record(path)


def test_a_training_goes_on_wherever_posnet_is_installed(tmp_path):
    """Earlier versions recorded the folder as seen from the working directory."""
    record = Record(tmp_path / "train.json")
    record.begin({"--user-dir": ".venv/lib/python3.11/site-packages/posnet_fairseq", "--lr": "1"})
    assert Record(record.path).differences({"--user-dir": "posnet_fairseq", "--lr": "1"}) == []


def test_scores_are_done_however_their_metrics_were_written(tmp_path):
    """Earlier versions recorded them as they were given, with spaces or with commas."""
    record = Record(tmp_path / "score.json")
    record.begin({"--metrics": "bleu chrf"})
    assert Record(record.path).differences({"--metrics": "bleu,chrf"}) == []
    assert Record(record.path).differences({"--metrics": "bleu,ter"}) != []
