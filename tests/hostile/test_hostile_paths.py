"""Every path argument of every command with every kind of bad path."""

import argparse
import os
import re
import shlex
import signal
import stat
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import sentencepiece

from posnet_fairseq.shared.files import a_path, path_text
from support import commands
from support.hostile import Row, copy_of, play, table
from support.training_log import training_log

# What a path is for.
CHECKPOINT = "checkpoint"
FILE = "file"  # read more than once
TEXT = "text"  # read once, so that a pipe will do
FOLDER = "folder"
OUTPUT = "output"
PICTURE = "picture"  # without the end of its name
NEW_FOLDER = "new folder"
OUTPUT_FOLDER = "output folder"
DOWNLOADS = "downloads"
CACHE = "cache"

HANGS = 300  # seconds; nothing here takes as many, even on a slow machine


@dataclass(frozen=True)
class Given:
    """A path on a command line: its kind, and a valid value."""

    kind: str
    good: str


@dataclass(frozen=True)
class Command:
    """A command line with the names of paths in braces.

    Attributes:
        line: the command line.
        paths: {name: :class:`Given`}.
        makes: patterns of the files that it writes with valid paths.
        quick: whether to run it with valid paths, too.
    """

    line: str
    paths: dict
    makes: tuple = ()
    quick: bool = True

    def filled(self, **paths):
        """The line with valid paths except those given."""
        filled = {name: shlex.quote(paths.get(name, path.good)) for name, path in self.paths.items()}
        return self.line.format(**filled)


_TRANSLATE = "posnet-translate {checkpoint} --beam 1 --max-len-b 2 --input {input} --output {output} --data {data}"
_SCORE = "posnet-score --metrics bleu --resamples 40 --workers 1 --source {source} --reference {reference} "
_PREPARE = "--out {out} --workers 1 --dry-run"
_FIGURES = ("figures", "figures/*")
COMMANDS = [
    Command(
        "posnet-average {folder} --num 1 --out {out}",
        {"folder": Given(FOLDER, "run"), "out": Given(OUTPUT, "new.pt")},
        makes=("new.pt",),
    ),
    Command(
        "posnet-precompute {checkpoint} --out {out} --max-length 32 --data {data}",
        {
            "checkpoint": Given(CHECKPOINT, "model.pt"),
            "out": Given(OUTPUT, "new.pt"),
            "data": Given(FOLDER, "data"),
        },
        makes=("new.pt",),
    ),
    Command(
        f"{_TRANSLATE} --bpe-codes {{codes}}",
        {
            "checkpoint": Given(CHECKPOINT, "model.pt"),
            "input": Given(TEXT, "text/test.xx"),
            "output": Given(OUTPUT, "new.txt"),
            "data": Given(FOLDER, "data"),
            "codes": Given(FILE, "codes"),
        },
        makes=("new.txt",),
    ),
    Command(
        f"{_TRANSLATE} --sentencepiece-model {{pieces}}",
        {
            "checkpoint": Given(CHECKPOINT, "model.pt"),
            "input": Given(TEXT, "text/test.xx"),
            "output": Given(OUTPUT, "new.txt"),
            "data": Given(FOLDER, "data"),
            "pieces": Given(FILE, "pieces.model"),
        },
        makes=("new.txt",),
    ),
    Command(
        "posnet-export {checkpoint} --onnx {onnx}",
        {"checkpoint": Given(CHECKPOINT, "fast.pt"), "onnx": Given(NEW_FOLDER, "graphs")},
        makes=("graphs", "graphs/*"),
        quick=False,
    ),
    *(
        Command(
            f"posnet-plot weights {{checkpoint}} --sentence 'a1 a2' --out {{out}} --data {{data}} {option} {{text}}",
            {
                "checkpoint": Given(CHECKPOINT, "model.pt"),
                "out": Given(OUTPUT_FOLDER, "figures"),
                "data": Given(FOLDER, "data"),
                "text": Given(FILE, good),
            },
            makes=_FIGURES,
            quick=False,
        )
        for option, good in (("--bpe-codes", "codes"), ("--sentencepiece-model", "pieces.model"))
    ),
    Command(
        "posnet-plot curves {runs} --out {out}",
        {"runs": Given(FOLDER, "log"), "out": Given(PICTURE, "curves")},
        makes=("curves.*",),
    ),
    Command(
        "posnet-plot compare {report} --out {out}",
        {"report": Given(TEXT, "report/report.json"), "out": Given(OUTPUT_FOLDER, "figures")},
        makes=_FIGURES,
    ),
    Command(
        f"{_SCORE} --system a={{system}} --out {{out}} --cache {{cache}}",
        {
            "source": Given(TEXT, "text/test.xx"),
            "reference": Given(TEXT, "text/test.yy"),
            "system": Given(TEXT, "text/test.xx"),
            "out": Given(OUTPUT_FOLDER, "figures"),
            "cache": Given(CACHE, "scores.sqlite"),
        },
        makes=("figures", "figures/*", "scores.sqlite*"),
    ),
    Command(
        "posnet-score --config {config} --out {out} --cache scores.sqlite",
        {"config": Given(TEXT, "comparison.yaml"), "out": Given(OUTPUT_FOLDER, "figures")},
        makes=("figures", "figures/*", "scores.sqlite*"),
    ),
    Command(
        f"posnet-prepare corpus --train {{source}} {{target}} --valid {{valid}} text/valid.yy -s xx -t yy {_PREPARE} "
        "--test {test} text/test.yy",
        {
            "source": Given(FILE, "text/train.xx"),
            "target": Given(FILE, "text/train.yy"),
            "valid": Given(FILE, "text/valid.xx"),
            "test": Given(FILE, "text/test.xx"),
            "out": Given(OUTPUT_FOLDER, "prepared"),
        },
    ),
    Command(
        f"posnet-prepare text --train {{train}} --valid {{valid}} --test {{test}} {_PREPARE}",
        {
            "train": Given(FILE, "text/train.xx"),
            "valid": Given(FILE, "text/valid.xx"),
            "test": Given(FILE, "text/test.xx"),
            "out": Given(OUTPUT_FOLDER, "prepared"),
        },
    ),
    Command(
        f"posnet-prepare quickstart.en-de --downloads {{downloads}} --mirror {{mirror}} {_PREPARE}",
        {
            "downloads": Given(DOWNLOADS, "downloads"),
            "mirror": Given(FOLDER, "text"),
            "out": Given(OUTPUT_FOLDER, "prepared"),
        },
    ),
    Command("posnet-length-ratio {data}", {"data": Given(FOLDER, "data")}),
    Command(
        "posnet-bench decode --mixers --checkpoints {checkpoints} --beams 1 --lengths 4 --sentences 1 --rounds 1",
        {"checkpoints": Given(CHECKPOINT, "model.pt")},
        quick=False,
    ),
    Command(
        "posnet-bench prepare --text {text} text/test.yy --pairs 10 --folder {folder}",
        {"text": Given(TEXT, "text/test.xx"), "folder": Given(FOLDER, "text")},
        quick=False,
    ),
]
# Those that take no path.
WITHOUT_PATHS = {"posnet-doctor", "posnet-mixers"}


@pytest.fixture(scope="module")
def paths_world(world, tmp_path_factory):
    """The world with a precomputed model, subwords, a training log, a report and a configuration."""
    folder = copy_of(world, tmp_path_factory.mktemp("paths") / "world")
    (folder / "log").mkdir()
    (folder / "log" / "train.log").write_text(training_log())
    (folder / "codes").write_text("#version: 0.2\na 1\n")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text" / "train.xx"), model_prefix=str(folder / "pieces"), vocab_size=20, minloglevel=2
    )
    (folder / "comparison.yaml").write_text(
        "systems: [a]\nmetrics: bleu\nresamples: 40\ncolumns: {params: {a: 3.1M}}\n"
        "test_sets: {test: {reference: text/test.yy, outputs: {a: text/test.xx}}}\n"
    )
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    commands.run_program(patch, "posnet-precompute", "model.pt", "--out", "fast.pt")
    commands.run_program(patch, "posnet-score", "--config", "comparison.yaml", "--out", "report", "--cache", "cache")
    (folder / "cache").unlink()
    patch.undo()
    return folder


@pytest.fixture
def folder(paths_world, tmp_path):
    return copy_of(paths_world, tmp_path / "world")


def node(path, number):
    """Make a device: 3 is /dev/null, 7 is /dev/full."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, number))
        path.open("rb").close()
    except PermissionError:
        pytest.skip("devices cannot be made here")


def fed(path, content):
    """A pipe with a writer."""
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(content,), daemon=True).start()


def drained(path):
    """A pipe with a reader, which writes what it reads to a file beside the pipe."""
    os.mkfifo(path)

    def read():
        path.with_name("received").write_bytes(path.read_bytes())

    threading.Thread(target=read, name="reader", daemon=True).start()


def _rows():
    for number, command in enumerate(COMMANDS):
        for name, given in command.paths.items():
            cases = INPUTS[given.kind] if given.kind in INPUTS else OUTPUTS[given.kind]
            for bad in cases:
                row = _row(command, name, given, bad)
                if row is not None:
                    title = f"{number} {' '.join(command.line.split()[:2])} {{{name}}}: {row.name}"
                    yield Row(title, row.command, row.says, row.code, row.before, row.makes, row.after)
            if given.kind in OUTPUTS:
                for other, its in command.paths.items():
                    if its.kind in INPUTS and other != "data":
                        yield from _onto_input(f"{number} {command.line.split()[0]}", command, name, given, other, its)


def _row(command, name, given, bad):
    """The row of one bad path; None if it does not apply."""
    path, before, works = bad(given)
    line = command.filled(**{name: path})
    title = bad.__name__.replace("_", " ")
    if works is False:
        said = "is no path|is not named|there is no" if not path or "\0" in path else re.escape(path.rstrip("/")[:40])
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


def nothing(folder):
    pass


# Bad paths: of what is given, (path, what is made first, what is there afterwards if it works, else False).


def missing(given):
    return "nowhere/nothing", nothing, False


def empty(given):
    return "", nothing, False


def with_a_NUL(given):
    return "a\0b", nothing, False


def too_long(given):
    return "x" * 300, nothing, False


def a_folder(given):
    return "text", nothing, False


def a_file(given):
    return "text/test.xx", nothing, False


def below_a_file(given):
    return "text/test.xx/nothing", nothing, False


def loop(given):
    return "loop", lambda folder: (folder / "loop").symlink_to("loop"), False


def dangling(given):
    return "dangling", lambda folder: (folder / "dangling").symlink_to("nothing"), False


def link(given):
    return "link", lambda folder: (folder / "link").symlink_to(given.good), True


def unreadable(given):
    return "/proc/self/mem", nothing, False


def device(given):
    return "null", lambda folder: node(folder / "null", 3), False


def pipe(given):
    """A pipe without a writer, on which a command must not wait."""
    return "pipe", lambda folder: os.mkfifo(folder / "pipe"), False


def fed_pipe(given):
    return "pipe", lambda folder: fed(folder / "pipe", (folder / given.good).read_bytes()), True


def with_a_slash(given):
    return f"{given.good}/", nothing, True


def link_to_a_file(given):
    def make(folder):
        (folder / "old").write_text("old")
        (folder / "link").symlink_to("old")

    return "link", make, ("old",)


def link_to_nothing(given):
    return "link", lambda folder: (folder / "link").symlink_to("target"), ("target",)


def link_to_nowhere(given):
    return "link", lambda folder: (folder / "link").symlink_to("no/target"), False


def null_device(given):
    return "null", lambda folder: node(folder / "null", 3), ()


def full_device(given):
    return "full", lambda folder: node(folder / "full", 7), False


def read_pipe(given):
    return "pipe", lambda folder: drained(folder / "pipe"), ("received",)


def open_file(given):
    return "/dev/fd/2", nothing, ()


def closed_file(given):
    return "/dev/fd/987", nothing, False


def in_proc(given):
    return "/proc/nothing", nothing, False


def in_sys(given):
    return "/sys/nothing", nothing, False


def ending_in_a_slash(given):
    return "new/", nothing, False


def name_of_250(given):
    return "y" * 250, nothing, ("y" * 250,)


def old_file(given):
    return "old", lambda folder: (folder / "old").write_text("old"), ("old",)


def picture_of_another(given):
    def make(folder):
        (folder / "mine.png").write_bytes(b"\x89PNG, mine")

    return "mine", make, False


def folder_of_another(given):
    """A folder with files of every name that a command writes, which posnet did not write."""

    def make(folder):
        (folder / "mine").mkdir()
        for name in ("report.md", "report.json", "compare.params.png", "weights.html", "dataset.json"):
            (folder / "mine" / name).write_text("mine")

    return "mine", make, False


def link_to_a_folder(given):
    def make(folder):
        (folder / "real").mkdir()
        (folder / "link").symlink_to("real")

    return "link", make, ("real/*",)


_ANY = [empty, with_a_NUL, too_long, loop]
_READ = [missing, *_ANY, dangling, below_a_file]
INPUTS = {
    CHECKPOINT: [*_READ, a_folder, unreadable, device, pipe, link],
    FILE: [*_READ, a_folder, device, pipe, link],
    TEXT: [*_READ, a_folder, unreadable, fed_pipe, link],
    FOLDER: [*_READ, a_file, device, pipe, link, with_a_slash],
}
_FOLDERS = [*_ANY, dangling, a_file, below_a_file, device, pipe, in_proc, in_sys]
OUTPUTS = {
    OUTPUT: [
        *(missing, *_ANY, a_folder, below_a_file, link_to_nowhere, full_device, closed_file, in_proc, in_sys),
        *(ending_in_a_slash, link_to_a_file, link_to_nothing, null_device, read_pipe, open_file, name_of_250, old_file),
    ],
    PICTURE: [
        missing,
        empty,
        with_a_NUL,
        too_long,
        below_a_file,
        in_proc,
        in_sys,
        ending_in_a_slash,
        picture_of_another,
    ],
    NEW_FOLDER: [missing, *_FOLDERS, a_folder],
    OUTPUT_FOLDER: [*_FOLDERS, folder_of_another, link_to_a_folder],
    DOWNLOADS: [*_FOLDERS, link_to_a_folder],
    CACHE: [*_ANY, a_folder, a_file, below_a_file, device, pipe, in_proc, in_sys],
}


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
        says = "would be lost" if given.kind == OUTPUT else "is damaged or something else"
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


class _Seen(BaseException):
    """The parser of a command."""


def _paths_of(program, monkeypatch):
    """{(command, option)} of all paths on a command line."""

    def see(parser, *_):
        raise _Seen(parser)

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", see)
        with pytest.raises(_Seen) as seen:
            commands.program(program)([])
    waiting, found = [seen.value.args[0]], set()
    while waiting:
        for action in waiting.pop()._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting += action.choices.values()
            if action.type in (a_path, path_text):
                found.add((program, action.option_strings[-1] if action.option_strings else action.dest))
            assert action.type is not Path, f"{program} {action.dest}: its type should be a_path, which is never empty"
    return found


def _scripts():
    setup = (commands.ROOT / "setup.py").read_text()
    return set(re.findall(r'"(posnet-[a-z-]+)=', setup))


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
    assert {command.line.split()[0] for command in COMMANDS} | WITHOUT_PATHS == _scripts()
    assert set().union(*(_paths_of(name, monkeypatch) for name in _scripts())) <= _declared()
