"""Every path of every command: missing, of the wrong kind, or an input; and all that can be wrong with each kind."""

import argparse
import os
import re
import shlex
import shutil
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
import sentencepiece

from posnet_fairseq.shared.files import a_path, path_text
from posnet_fairseq.studies.results import path_of, write_result
from support import commands
from support.hostile import Row, play, table
from support.hostile_files import RAW, node
from support.path_commands import (
    CACHE,
    CHECKPOINT,
    COMMANDS,
    DOWNLOADS,
    ELSEWHERE,
    FILE,
    FOLDER,
    NEW_FOLDER,
    OUTPUT,
    OUTPUT_FOLDER,
    PICTURE,
    TEXT,
    WITHOUT_PATHS,
)
from support.study import result
from support.training_log import training_log

FED, READ = 900, 901  # open files: pipes of other programs, as <(...) and >(...) in a shell


def _nothing(folder, good):
    pass


def _link(name, target="{good}"):
    return name, lambda folder, good: (folder / name).symlink_to(target.format(good=good))


def _fed(folder, good):
    """A pipe with text in it, whose writer has closed it."""
    reading, writing = os.pipe()
    os.dup2(reading, FED)
    os.close(reading)
    with open(writing, "wb") as pipe:
        pipe.write((folder / good).read_bytes())


def _read(folder, good):
    """A pipe whose reader writes what it reads to a file."""
    reading, writing = os.pipe()
    os.dup2(writing, READ)
    os.close(writing)

    def read():
        with open(reading, "rb") as pipe:
            (folder / "received").write_bytes(pipe.read())

    threading.Thread(target=read, name="reader", daemon=True).start()


def _old(folder, good):
    """A checkpoint that posnet-average made, which all commands may replace."""
    shutil.copy(folder / "model.pt", folder / "old")
    (folder / "link").symlink_to("old")


def _linked_folder(folder, good):
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")


def _of_another(folder, good):
    """Files of every name that a command writes, which posnet did not write."""
    (folder / "mine").mkdir()
    names = ("report.md", "report.json", "compare.params.png", "weights.html", "dataset.json", "convergence.md")
    for name in names:
        (folder / "mine" / name).write_text("mine")


# {name: (path, what is made first, what is there afterwards if it works, else False)}. {good} stands for a good path.
BAD = {
    "missing": ("nowhere/nothing", _nothing, False),
    "empty": ("", _nothing, False),
    "too long": ("x" * 300, _nothing, False),
    "a folder": ("text", _nothing, False),
    "a file": ("text/test.xx", _nothing, False),
    "below a file": ("text/test.xx/nothing", _nothing, False),
    "loop": (*_link("loop", "loop"), False),
    "dangling": (*_link("dangling", "nothing"), False),
    "link": (*_link("link"), True),
    "unreadable": ("/proc/self/mem", _nothing, False),
    "device": ("null", lambda folder, good: node(folder / "null", 3), False),
    # A pipe without a writer, on which a command must not wait.
    "pipe": ("pipe", lambda folder, good: os.mkfifo(folder / "pipe"), False),
    "fed pipe": (f"/dev/fd/{FED}", _fed, True),
    "with a slash": ("{good}/", _nothing, True),
    "link to a file": ("link", _old, ("old",)),
    "link to nothing": (*_link("link", "target"), ("target",)),
    "null device": ("null", lambda folder, good: node(folder / "null", 3), ()),
    "full device": ("full", lambda folder, good: node(folder / "full", 7), False),
    "read pipe": (f"/dev/fd/{READ}", _read, ("received",)),
    "closed file": ("/dev/fd/987", _nothing, False),
    "in proc": ("/proc/nothing", _nothing, False),
    "ending in a slash": ("new/", _nothing, False),
    "name of 250": ("y" * 250, _nothing, ("y" * 250,)),
    "picture of another": ("mine", lambda folder, good: (folder / "mine.png").write_bytes(b"\x89PNG, mine"), False),
    "folder of another": ("mine", _of_another, False),
    "link to a folder": ("link", _linked_folder, ("real/*",)),
    "input that is not UTF-8": (*_link(RAW), True),
    "output that is not UTF-8": (RAW, _nothing, (RAW,)),
    "folder that is not UTF-8": (RAW, _nothing, (RAW, f"{RAW}/*")),
    "two lines": ("a\nb", _nothing, ("a\nb",)),
}
# {kind: (what every path of the kind is tried with, what one is)}
TRIED = {
    CHECKPOINT: (
        ("missing",),
        ("empty", "too long", "loop", "a folder", "unreadable", "device", "pipe", "link", "input that is not UTF-8"),
    ),
    FILE: (("missing",), ("a folder", "device", "pipe", "input that is not UTF-8")),
    TEXT: (("missing",), ("a folder", "loop", "unreadable", "fed pipe", "input that is not UTF-8")),
    FOLDER: (("missing",), ("a file", "pipe", "link", "with a slash", "input that is not UTF-8")),
    OUTPUT: (
        ("a folder",),
        (
            *("missing", "empty", "too long", "loop", "below a file", "full device", "closed file", "in proc"),
            *("ending in a slash", "link to a file", "link to nothing", "null device", "read pipe", "name of 250"),
            *("output that is not UTF-8", "two lines"),
        ),
    ),
    PICTURE: (("missing",), ("picture of another",)),
    NEW_FOLDER: (("a file",), ("missing", "folder that is not UTF-8")),
    OUTPUT_FOLDER: (
        ("a file", "folder of another"),
        ("too long", "dangling", "below a file", "in proc", "link to a folder", "folder that is not UTF-8"),
    ),
    DOWNLOADS: (("a file",), ("below a file",)),
    CACHE: (("a folder",), ("a file", "below a file", "device")),
}


@pytest.fixture(scope="module")
def world(world, tmp_path_factory):
    """The world with a precomputed model, subwords, a training log, a report and a configuration."""
    folder = shutil.copytree(world, tmp_path_factory.mktemp("paths") / "world", symlinks=True)
    (folder / "log").mkdir()
    (folder / "log" / "train.log").write_text(training_log())
    (folder / "groups").write_text("a\n" * len((folder / "text" / "test.yy").read_text().splitlines()))
    (folder / "terms").write_text("a1\ta2\n")
    (folder / "candidates").write_text("0 ||| a b ||| -0.100000\n0 ||| a c ||| -0.200000\n")
    (folder / "sources").write_text("a source\n")
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
    """The rows of every path of a program, in a quick line of it if there is one."""
    seen = set()
    for command in sorted(COMMANDS, key=lambda command: not command.quick):
        program = " ".join(word for word in command.line.split()[:2] if not word.startswith(("-", "{")))
        for name, given in command.paths.items():
            option = command.line[: command.line.index(f"{{{name}}}")].split()[-1]
            every, once = TRIED[given.kind]
            for bad in (*every, *once):
                tried = (given.kind, bad) if bad in once else (program, option, name, bad)
                if tried not in seen and (command.quick or not BAD[bad][2]):
                    seen.add(tried)
                    yield _row(f"{program} {option} {{{name}}}: {bad}", command, name, given, bad)
            inputs = [
                other for other, its in command.paths.items() if given.kind == OUTPUT and its.kind in (FILE, TEXT)
            ]
            for other in inputs:
                if (program, option, name, other) not in seen:
                    seen.add((program, option, name, other))
                    line = command.filled(**{name: f"text/.././{command.paths[other].good}"})
                    yield Row(f"{program} {option} {{{name}}} is its {{{other}}}", line, "would be lost")


def _row(title, command, name, given, bad):
    path, make, works = BAD[bad]
    path, before = path.format(good=given.good), partial(make, good=given.good)
    line = command.filled(**{name: path})
    if works is False:
        says = re.escape(path.rstrip("/")[:40]) if path else "is no path|NAME=FILE"
        return Row(title, line, says, 2, before)
    makes = command.makes
    if isinstance(works, tuple):  # not where it would be made with a good path
        makes = (*works, *(pattern for pattern in makes if not pattern.startswith(given.good)))
    return Row(title, line, "", 0, before, makes, partial(_look_at, makes if command.makes else ()))


def _look_at(makes, folder):
    """No output is missing or empty."""
    for thread in threading.enumerate():
        if thread.name == "reader":
            os.close(READ)  # it reads to the end
            thread.join()
    for pattern in makes:
        found = list(folder.glob(pattern))
        assert found, f"no {pattern} was made"
        assert all(path.stat().st_size for path in found), pattern


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
