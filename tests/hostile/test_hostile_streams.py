"""Standard streams, pipes and open files of all commands: closed, full, without a reader, or an input as well."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from posnet_fairseq.shared import files
from posnet_fairseq.shared.errors import UsageError
from support import commands
from support.hostile import write
from support.hostile_files import CORPUS, SCORE, TRANSLATE, translated
from support.training_log import training_log

# A line of each command that prints its result.
PRINTING = {
    "posnet-analog": "posnet-analog model.pt --pretokenized --on output --noise none --test text/test.xx text/test.yy "
    "--out crossbars",
    "posnet-bench": "posnet-bench layers --mixers rposnet --lengths 4 --size tiny --tokens 8 --rounds 1",
    "posnet-doctor": "posnet-doctor",
    "posnet-generate": "posnet-generate lm/model.pt --pretokenized --max-len-b 2 --input text/test.xx",
    "posnet-length-ratio": "posnet-length-ratio data",
    "posnet-mixers": "posnet-mixers rposnet",
    "posnet-prepare": "posnet-prepare --list",
    "posnet-rerank": "posnet-rerank candidates --utility bleu",
    "posnet-score": SCORE,
    "posnet-translate": TRANSLATE,
}
# A line of each command that writes files.
WRITING = {
    "posnet-average": "posnet-average run --num 1 --out γ.pt",
    "posnet-export": "posnet-export model.pt --out γ",
    "posnet-plot": "posnet-plot curves log --out γ",
    "posnet-precompute": "posnet-precompute model.pt --out γ.pt",
    "posnet-prepare": f"{CORPUS} --out γ",
}
ELSEWHERE = {"posnet-run"}  # starts the others: tests/recipes


@pytest.fixture
def folder(folder):
    """With a log of a training, and candidates for two lines."""
    write("log/train.log", training_log())(folder)
    write("candidates", "0 ||| a b ||| -0.100000\n1 ||| c ||| -0.100000\n")(folder)
    return folder


def no_reader():
    """A pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    return open(writing, "w")


def ends(monkeypatch, command, **streams):
    """The exit code of a command in this process, with other standard streams."""
    with monkeypatch.context() as patch:
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        try:
            commands.run_program(monkeypatch, *command.split())
        except SystemExit as error:
            return error.code
    return 0


def test_open_files(tmp_path):
    """/dev/fd/N is written to at its current position."""
    with open(tmp_path / "file", "w") as file:
        file.write("before\n")
        file.flush()
        files.write_lines(f"/dev/fd/{file.fileno()}", ["a"])
        files.write_lines(f"/proc/self/fd/{file.fileno()}", ["b"])
        file.write("after\n")
    assert (tmp_path / "file").read_text() == "before\na\nb\nafter\n"
    with open(tmp_path / "file") as file, pytest.raises(UsageError, match="open for reading only"):
        files.write_lines(f"/dev/fd/{file.fileno()}", ["a"])


def test_the_old_standard_input_is_not_lost(folder, monkeypatch, capfd):
    """< FILE --output FILE"""
    monkeypatch.chdir(folder)
    before = Path("text/test.xx").read_bytes()
    with open("text/test.xx", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        arguments = TRANSLATE.replace("--input text/test.xx", "--output text/test.xx").split()
        with pytest.raises(SystemExit):
            commands.run_program(monkeypatch, *arguments)
    assert "same file as standard input" in capfd.readouterr().err
    assert Path("text/test.xx").read_bytes() == before


@pytest.mark.parametrize("script", commands.COMMANDS)
@pytest.mark.thorough  # 12 s: every command in a process of its own
def test_streams_of_every_command(script, monkeypatch, capfd, folder):
    """Nobody reads, nothing can be written, the terminal knows ASCII only."""
    monkeypatch.chdir(folder)
    for command in (f"{script} --help", PRINTING.get(script)):
        if command is None:
            continue
        assert ends(monkeypatch, command, stdout=no_reader()) == 141, command
        assert capfd.readouterr().err.count("rror") == 0
        with open("/dev/full", "w") as full:
            assert ends(monkeypatch, command, stdout=full) == 2, command
        assert re.search("could not be written|the disk is full", capfd.readouterr().err), command
        ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        assert ends(monkeypatch, command, stdout=ascii_only) == 0, command
        assert ascii_only.tell()
    with os.fdopen(os.open(os.devnull, os.O_RDONLY), "w") as read_only:
        for stdout, problem in ((None, "closed"), (read_only, "open for reading only")):
            if script in PRINTING:
                assert ends(monkeypatch, PRINTING[script], stdout=stdout) == 2
                assert f"standard output is {problem}" in capfd.readouterr().err
    if script in WRITING:
        assert ends(monkeypatch, WRITING[script], stdout=None) == 0


def test_every_command_is_among_them():
    assert set(PRINTING) | set(WRITING) | ELSEWHERE == set(commands.COMMANDS)


# A locale that is not UTF-8, without Python's ways around it. It is there on every machine.
NOT_UTF8 = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize("script", [*WRITING, "posnet-translate", "posnet-score"])
@pytest.mark.quick_cases(1)
def test_a_locale_that_is_not_utf8(script, folder):
    """Text that it lacks is printed in another form; names are those of the command line.

    Nor do other variables keep a command from its work, or from printing. All commands print alike.
    """
    command = WRITING.get(script, PRINTING.get(script))
    if script == "posnet-score":
        command = command.replace("a=text/test.xx", "é=text/test.xx γ=text/test.yy --out report")
    environment = os.environ | NOT_UTF8 | {"COLUMNS": "0", "MPLBACKEND": "no such backend"}
    path = Path(sys.executable).parent / script
    done = subprocess.run([path, *command.split()[1:]], cwd=folder, env=environment, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert re.search(r"\w", done.stdout + done.stderr)
    if script in WRITING:
        assert list(folder.glob("γ*"))
    if script == "posnet-score":
        assert list(json.loads((folder / "report/report.json").read_text())["systems"]) == ["é", "γ"]


def test_notes_do_not_get_into_the_output(folder, monkeypatch, capfd):
    """Standard error is closed, as by 2>&-."""
    translated(folder, monkeypatch, "--output", "expected")
    capfd.readouterr()
    assert ends(monkeypatch, TRANSLATE, stderr=None) == 0
    assert capfd.readouterr().out == Path("expected").read_text()


def test_standard_input_is_closed(folder, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    command = TRANSLATE.replace("--input text/test.xx", "")
    assert ends(monkeypatch, command, stdin=None) == 2
    assert "standard input is closed" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("redirected", "code", "says"),
    [
        ("posnet-prepare --list > /dev/full", 2, "posnet-prepare: error: "),
        ("PYTHONUNBUFFERED=1 posnet-prepare --help > /dev/full", 2, "standard output could not be written"),
        ("posnet-prepare --list >&- <&-", 2, "standard output is closed"),
        ("posnet-prepare nothing 2>&-", 2, ""),
        ("posnet-prepare nothing 2> /dev/full", 2, ""),
        ("posnet-prepare --list | true; exit ${PIPESTATUS[0]}", 141, ""),  # as with | head
    ],
)
@pytest.mark.quick_cases(1)
def test_redirections(redirected, code, says):
    """In a shell, where the interpreter could print more errors when it exits."""
    program = shlex.quote(f"{Path(sys.executable).parent}/posnet-prepare")
    command = ["bash", "-c", redirected.replace("posnet-prepare", program, 1)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # writes at once
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert done.stderr.count("\n") <= (code == 2), done.stderr
