"""Hostile and careless use: tables of commands in a folder, with the results that they must have."""

import contextlib
import hashlib
import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from posnet_fairseq.shared.failures import explain
from support import commands

ENDS = 2  # the exit code of a refusal
# Of models that are small, as each row has copies of them, with matrices that are not square.
SHAPE = " ".join(
    f"--{side}-layers 1 --{side}-embed-dim 32 --{side}-ffn-embed-dim 64 --{side}-attention-heads 2"
    for side in ("encoder", "decoder")
).split()


@dataclass(frozen=True)
class Row:
    """A command, its output and exit code, and the files that it may write.

    All other files in the folder must be unchanged afterwards.

    Attributes:
        name: of the row.
        command: command line of posnet's or fairseq's commands, run in the folder and in this process.
            ``train OPTION...`` is fairseq-train with a small model on ``data`` into ``trained``.
        says: regular expression that the output must contain.
        code: exit code. With 2, exactly one line of standard error must be an error.
        before: changes the folder first.
        makes: patterns of files that may be new or changed afterwards.
        after: checks the folder afterwards.
    """

    name: str
    command: str
    says: str = ""
    code: int = ENDS
    before: Callable[[Path], None] = lambda folder: None
    makes: tuple[str, ...] = ()
    after: Callable[[Path], None] = lambda folder: None

    def __str__(self):
        return self.name


def write(name, data="mine"):
    """A change of the folder: write a file anew, of text, bytes, or the JSON of a value."""

    def change(folder):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        text = data if isinstance(data, str | bytes) else json.dumps(data)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    return change


def then(*changes):
    """Several changes of the folder, one after the other."""

    def change(folder):
        for each in changes:
            each(folder)

    return change


def play(row, folder, monkeypatch, capfd):
    """Run the command of a row and check its result."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(logging, "raiseExceptions", False)  # of logs to what was standard output in another test
    row.before(folder)
    before = contents(folder)
    capfd.readouterr()
    code = run(row.command, monkeypatch)
    captured = capfd.readouterr()
    printed = captured.out + captured.err
    assert "Traceback" not in printed, printed
    assert code == row.code, printed
    assert re.search(row.says, printed), printed
    if code == ENDS:
        errors = [line for line in captured.err.splitlines() if "error: " in line]
        assert len(errors) == 1, printed
    after = contents(folder)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    unexpected = {name for name in changed if not any(Path(name).match(pattern) for pattern in row.makes)}
    assert not unexpected, f"{sorted(unexpected)}: changed, made or lost"
    left = [name for name in after if Path(name).name.startswith(".") and Path(name).name != ".lock"]
    assert not left, f"{left}: left behind"
    row.after(folder)


def run(command, monkeypatch):
    """Run a command, printing its output, and return its exit code."""
    name, *arguments = shlex.split(command)
    if name == "train":
        short = "--max-update 4 --save-interval-updates 2 --no-epoch-checkpoints".split()
        return fairseq("train", commands.train_arguments("data", "trained", *SHAPE, *short, *arguments), monkeypatch)
    if name.startswith("fairseq-"):
        return fairseq(name.removeprefix("fairseq-"), arguments, monkeypatch)
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(monkeypatch.context())
        patch.setattr(sys, "stdin", stack.enter_context(open(os.devnull, encoding="utf-8")))
        try:
            commands.run_program(monkeypatch, name, *arguments)
        except SystemExit as error:
            return error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    return 0


def fairseq(command, arguments, monkeypatch):
    """Run one of fairseq's commands and return its exit code; errors are printed as with the plugin."""
    try:
        commands.call(monkeypatch, command, *arguments)
    except Exception as error:
        sentence = explain(error)
        if sentence is None:
            raise
        print(f"posnet: error: {sentence}", file=sys.stderr)
        return ENDS
    return 0


def contents(folder):
    """The content of a folder: {name: (kind, hash of a file or target of a link)}."""
    return {str(path.relative_to(folder)): _look(path) for path in Path(folder).rglob("*")}


def _look(path):
    if path.is_symlink():
        return "symlink", os.readlink(path)
    if path.is_dir():
        return "folder", ""
    if not path.is_file():
        return "device or pipe", ""
    return "file", hashlib.sha256(path.read_bytes()).hexdigest()


def also(commands, name, rows):
    """The row of a name, for other commands that read the same."""
    (row,) = [row for row in rows if row.name == name]
    return [Row(f"{name}: {command.split()[0]}", command, row.says, before=row.before) for command in commands]


def table(rows):
    """Decorator of a test of one row, for all rows of a table; quick are the first of each program and exit code."""
    names = [row.name for row in rows]
    assert len(set(names)) == len(names), "rows need names of their own"
    quick = {(row.command.split()[0], row.code): row for row in reversed(rows)}.values()
    marks = [[] if row in quick else [pytest.mark.thorough] for row in rows]
    return pytest.mark.parametrize(
        "row", [pytest.param(row, id=str(row), marks=mark) for row, mark in zip(rows, marks, strict=True)]
    )
