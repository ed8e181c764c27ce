"""Every path argument of every command with every kind of bad path."""

import argparse
import os
import re
import shlex
import shutil
import signal
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
import sentencepiece

from posnet_fairseq.shared.files import a_path, path_text
from posnet_fairseq.studies.results import path_of, write_result
from support import commands
from support.bad_paths import BAD, INPUTS, OUTPUTS, nothing
from support.hostile import Row, play, table
from support.path_commands import CACHE, COMMANDS, ELSEWHERE, FOLDER, OUTPUT, WITHOUT_PATHS
from support.study import result
from support.training_log import training_log

UTF_8_ONLY = ("reference",)  # other names are refused
HANGS = 300  # seconds; nothing here takes as long, even on a slow machine


@pytest.fixture(scope="module")
def world(world, tmp_path_factory):
    """The world with a precomputed model, subwords, a training log, a report and a configuration."""
    folder = shutil.copytree(world, tmp_path_factory.mktemp("paths") / "world", symlinks=True)
    (folder / "log").mkdir()
    (folder / "log" / "train.log").write_text(training_log())
    (folder / "groups").write_text("a\n" * len((folder / "text" / "test.yy").read_text().splitlines()))
    (folder / "codes").write_text("#version: 0.2\na 1\n")
    (folder / "words").mkdir()  # dictionaries without a data card
    for dictionary in (folder / "data").glob("dict.*.txt"):
        shutil.copy(dictionary, folder / "words")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text" / "train.xx"), model_prefix=str(folder / "pieces"), vocab_size=20, minloglevel=2
    )
    (folder / "comparison.yaml").write_text(
        "systems: [a]\nmetrics: bleu\nresamples: 40\ncolumns: {params: {a: 3.1M}}\n"
        "test_sets: {test: {reference: text/test.yy, outputs: {a: text/test.xx}}}\n"
    )
    sizes = {"test": 40, "test1": 40}
    write_result(path_of(folder / "results", "shaw", 1), result("convergence", "shaw", 1, 0.6, sizes))
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    commands.run_program(patch, "posnet-precompute", "model.pt", "--out", "fast.pt")
    commands.run_program(patch, "posnet-score", "--config", "comparison.yaml", "--out", "report", "--cache", "cache")
    (folder / "cache").unlink()
    test = ("--test", "text/test.xx", "text/test.yy", "--data", "data")
    on = ("--on", "output", "--noise", "none", "--time", "25s", "1d")
    commands.run_program(patch, "posnet-analog", "model.pt", *on, *test, "--out", "analog")
    commands.run_program(patch, "posnet-export", "model.pt", "--out", "exported", "--shortlist-from", "data")
    (folder / "exported" / "shortlist.safetensors").rename(folder / "shortlist.safetensors")
    shutil.rmtree(folder / "exported")
    patch.undo()
    return folder


def _rows():
    """Each argument of a program with each bad path, in one of its lines: in a quick one, if it has any."""
    tried = set()

    def is_new(*argument):
        return argument not in tried and not tried.add(argument)

    for number, command in sorted(enumerate(COMMANDS), key=lambda numbered: not numbered[1].quick):
        program = " ".join(word for word in command.line.split()[:2] if not word.startswith(("-", "{")))
        for name, given in command.paths.items():
            cases = INPUTS[given.kind] if given.kind in INPUTS else OUTPUTS[given.kind]
            option = command.line[: command.line.index(f"{{{name}}}")].split()[-1]
            for bad in cases:
                row = _row(command, name, given, bad) if is_new(program, option, name, given.kind, bad) else None
                if row is not None and not (name in UTF_8_ONLY and "UTF-8" in bad):
                    title = f"{number} {' '.join(command.line.split()[:2])} {{{name}}}: {row.name}"
                    yield Row(title, row.command, row.says, row.code, row.before, row.makes, row.after)
            if given.kind in OUTPUTS:
                for other, its in command.paths.items():
                    if its.kind in INPUTS and other != "data" and is_new(program, option, name, other):
                        yield from _onto_input(f"{number} {command.line.split()[0]}", command, name, given, other, its)


def _row(command, name, given, title):
    """The row of one bad path; None if it does not apply."""
    path, make, works = BAD[title]
    path, before = path.format(good=given.good), partial(make, good=given.good)
    line = command.filled(**{name: path})
    if works is False:
        said = (
            "is no path|is not named|there is no|NAME=FILE"
            if not path or "\0" in path
            else re.escape(path.rstrip("/")[:40])
        )
        return Row(title, line, said, 2, before)
    if not command.quick:
        return None
    makes = command.makes
    if isinstance(works, tuple):  # not where it would be made with a good path
        makes = (*works, *(pattern for pattern in makes if not pattern.startswith(given.good)))
    return Row(title, line, "", 0, before, makes, partial(_look_at, makes if command.makes else ()))


def _look_at(makes, folder):
    """No output is missing or empty."""
    for thread in threading.enumerate():
        if thread.name == "reader":
            thread.join()
    for pattern in makes:
        found = list(folder.glob(pattern))
        assert found, f"no {pattern} was made"
        for path in found:
            assert path.stat().st_size, f"{path.name} is empty"


def _onto_input(title, command, name, given, other, its):
    """An output that is one of the inputs under another name."""
    if its.kind == FOLDER or given.kind not in (OUTPUT, CACHE):
        return
    makes = {
        "the same name": (its.good, nothing),
        "a roundabout name": (f"text/.././{its.good}", nothing),
        "a symbolic link": ("alias", lambda folder: (folder / "alias").symlink_to(its.good)),
        "a hard link": ("alias", lambda folder: os.link(folder / its.good, folder / "alias")),
    }
    for what, (path, before) in makes.items():
        says = "would be lost" if given.kind == OUTPUT else "file is not a database. Choose another place with --cache"
        yield Row(f"{title} {{{name}}} is its {other}: {what}", command.filled(**{name: path}), says, 2, before)


@pytest.fixture
def _ends():
    """Fail a test that does not end."""

    def end(*_):
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(HANGS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("_ends")
@table(list(_rows()))
def test_bad_path(row, folder, monkeypatch, capfd):
    play(row, folder, monkeypatch, capfd)


def _paths_of(program, monkeypatch):
    """{(command, option)} of all paths on a command line."""
    waiting, found = [], set()
    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", lambda parser, *_: sys.exit(waiting.append(parser)))
        with pytest.raises(SystemExit):
            commands.program(program)([])
    while waiting:
        for action in waiting.pop()._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting += action.choices.values()
            if action.type in (a_path, path_text):
                found.add((program, action.option_strings[-1] if action.option_strings else action.dest))
            assert action.type is not Path, f"{program} {action.dest}: its type should be a_path, which is never empty"
    return found


def _declared():
    """{(command, option or name of an argument)} of all paths in the list."""
    found = set()
    for command in COMMANDS:
        program, *words = shlex.split(command.line)
        for before, word in zip(["", *words], words, strict=False):
            for name in re.findall(r"\{(\w+)\}", word):
                found |= {(program, name), (program, before)}
    return found


def test_every_path_of_every_command_is_in_the_list(monkeypatch):
    scripts = set(commands.COMMANDS) - ELSEWHERE
    assert {command.line.split()[0] for command in COMMANDS} | WITHOUT_PATHS == scripts
    assert set().union(*(_paths_of(name, monkeypatch) for name in scripts)) <= _declared()
