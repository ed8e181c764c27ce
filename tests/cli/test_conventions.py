"""What all commands have in common: options, exit codes, and ends of their output."""

import argparse
import io
import os
import re
import signal
import subprocess
import sys
from importlib.metadata import entry_points, version

import pytest

from posnet_fairseq import __version__
from posnet_fairseq.shared import common_options, records
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.errors import UsageError, counted
from posnet_fairseq.shared.processes import run_attached
from posnet_fairseq.shared.progress import ProgressReporter, amount, plain_console
from support.commands import COMMANDS, ROOT, python, run_program
from support.signals import PATIENCE, default_signals

every_command = pytest.mark.parametrize("name", COMMANDS)


@pytest.fixture
def ended(monkeypatch, capsys):
    """A function that runs a command and returns its exit code, and what it printed on both streams."""

    def run(name, *arguments):
        with pytest.raises(SystemExit) as end:
            run_program(monkeypatch, name, *arguments)
        return end.value.code, *capsys.readouterr()

    return run


def subcommands(parser):
    """The parser and those of its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from subcommands(each)


def parser_of(name):
    (script,) = entry_points(group="console_scripts", name=name)
    return script.load().make_parser()


@every_command
def test_version(name, ended):
    code, out, err = ended(name, "--version")
    assert (code, err) == (0, "")
    (fairseq,) = (script.dist for script in entry_points(group="console_scripts", name="fairseq-train"))
    assert out == f"posnet {__version__}, torch {version('torch')}, {fairseq.name} {fairseq.version}\n"


def test_version_without_torch_and_fairseq(monkeypatch):
    monkeypatch.setattr(records, "installed_versions", lambda *_: {})
    assert common_options.versions() == f"posnet {__version__}, torch not installed, fairseq not installed"


@every_command
def test_help(name, ended):
    code, out, err = ended(name, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: {name} ")


@every_command
def test_an_unknown_option_is_2(name, ended):
    code, out, err = ended(name, "--no-such-option")
    assert (code, out) == (2, "")
    assert re.search(rf"{name}.*: error: .*", err.splitlines()[-1])
    assert "Traceback" not in err


@every_command
@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
        (UsageError("x 1: give 2."), 2, "{}: error: x 1: give 2.\n"),
        (FileNotFoundError(2, "No such file", "x"), 2, "{}: error: x: No such file. Check the path.\n"),
    ],
    ids=["interrupt", "no reader", "bad input", "no file"],
)
def test_exit_codes(name, error, code, said, ended, monkeypatch):
    def parse_args(*_):
        raise error

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    assert ended(name) == (code, "", said.format(name))


INTERRUPTED = """
import os, pathlib, signal, sys, time
from posnet_fairseq.shared import command

command._LONG = 0.1
pathlib.Path("dropping.py").write_text(
    "import os, signal, time\\n"
    "try:\\n    os.kill(os.getpid(), signal.SIGINT)\\n    time.sleep(0.05)\\n"
    "except BaseException:\\n    print('came in an import')\\n"
)
pathlib.Path("endless.py").write_text(
    "import os, signal, time\\nos.kill(os.getpid(), signal.SIGINT)\\nwhile True:\\n    time.sleep(0.05)\\n"
)
sys.path.insert(0, "")

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.05)

class Goes:
    def __del__(self):
        interrupt()

@command.command
def main(arguments):
    how = sys.argv[1]
    if how.startswith("import "):
        exec(how)
    elif how == "object":
        Goes()
    elif how != "nothing":
        try:
            interrupt()
        except BaseException:
            pass
        if how == "other error":
            raise ImportError
        if how == "error explained":
            command.explain = lambda _: interrupt()
            raise ValueError
    while how != "nothing":
        time.sleep(0.05)

main()
"""


@pytest.mark.parametrize(
    "how", ["import dropping", "import endless", "object", "dropped", "other error", "error explained", "nothing"]
)
def test_interrupts_are_heeded_wherever_they_come(how, tmp_path):
    """Others than the command may drop them, or have other errors of them."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = python(INTERRUPTED, how, cwd=tmp_path, env=environment, preexec_fn=default_signals, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0 if how == "nothing" else 130, "", "")


@pytest.mark.parametrize("name", ["posnet-x", "other"])
def test_a_command_is_interrupted_while_it_is_loaded(name):
    program = f"import sys; sys.argv[0] = '/bin/{name}'; import posnet_fairseq; raise KeyboardInterrupt"
    done = python(program)
    assert (done.returncode, "Traceback" in done.stderr) == (-signal.SIGINT, name == "other")


@every_command
def test_an_error_of_posnet_itself_has_a_traceback(name, monkeypatch):
    def parse_args(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    with pytest.raises(ZeroDivisionError):
        run_program(monkeypatch, name)


@every_command
def test_every_command_and_subcommand_can_be_quiet(name):
    for parser in subcommands(parser_of(name)):
        (quiet,) = [action for action in parser._actions if "--quiet" in action.option_strings]
        assert quiet.dest == "quiet"


def test_quiet_prints_results_and_errors_only(capsys):
    def run(arguments, prints_result=True):
        @parsed_by(argparse.ArgumentParser, prints_result=prints_result)
        def main(options):
            assert vars(options) == {}
            print("result")
            print("remark" + "\udcff" * prints_result, file=sys.stderr)
            ProgressReporter().say("progress")
            raise UsageError("it is wrong.")

        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 2
        return capsys.readouterr()

    out, err = run([])
    assert out == "result\n"
    assert err.splitlines()[:2] == [r"remark\udcff", "progress"]
    for prints_result, expected in ((True, "result\n"), (False, "")):
        out, err = run(["--quiet"], prints_result)
        assert out == expected
        assert re.fullmatch(r"\S+: error: it is wrong\.\n", err)


@pytest.mark.parametrize(("options", "expected"), [([], " data\n"), (["--quiet"], " data --quiet\n")])
def test_quiet_reaches_the_commands_that_a_command_starts(capfd, tmp_path, monkeypatch, options, expected):
    program = tmp_path / "posnet-prepare"
    program.write_text('#!/bin/sh\necho "$0 $*"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    parsed_by(argparse.ArgumentParser)(lambda _: run_attached([program.name, "data"]))(options)
    assert capfd.readouterr().out == f"{program}{expected}"


def test_quiet_before_and_behind_a_subcommand():
    parser = parser_of("posnet-prepare")
    corpus = "corpus --train a b --out c".split()
    assert [parser.parse_args(words).quiet for words in (corpus, ["--quiet", *corpus], [*corpus, "--quiet"])] == [
        *(False, True, True)
    ]


class TestModule:
    """``python -m posnet_fairseq``."""

    @pytest.fixture
    def module(self):
        def run(*arguments):
            command = [sys.executable, "-m", "posnet_fairseq", *arguments]
            return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)

        return run

    def test_lists_all_commands(self, module):
        lines = module().stdout.splitlines()
        assert [line.split()[0] for line in lines] == [name.removeprefix("posnet-") for name in COMMANDS]
        assert "average       Average checkpoints of a run" in lines

    def test_runs_a_command(self, module):
        ran = module("prepare", "corpus", "--out", "a:b", "--train", "a", "b")
        said = "posnet-prepare: error: --out a:b: fairseq takes a colon for the end of one folder and the start of the "
        assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"{said}next. Choose another name.\n")

    def test_a_command_that_is_not_there(self, module):
        ran = module("translte")
        assert ran.returncode == 2
        assert ran.stderr.endswith(
            "error: translte: there is no such command. Choose one of "
            + ", ".join(name.removeprefix("posnet-") for name in COMMANDS)
            + ".\n"
        )

    def test_version(self, module):
        assert module("--version").stdout == common_options.versions() + "\n"

    def test_completion(self, module, tmp_path):
        """bash completes options, subcommands and choices of every command."""
        pytest.importorskip("shtab")
        script = tmp_path / "completion.bash"
        script.write_text(module("--print-completion", "bash").stdout)

        def completed(*words):
            function = f"_shtab_{words[0].replace('-', '_')}"
            ask = f"source {script}; COMP_WORDS=({' '.join(words)} ''); COMP_CWORD={len(words)}; "
            ask += f"COMP_WORDS[{len(words) - 1}]='{words[-1]}'; COMP_CWORD={len(words) - 1}; "
            ask += f"{function} {words[0]} '{words[-1]}' '{words[-2]}'; echo ${{COMPREPLY[@]}}"
            return subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True).stdout.split()

        for name in COMMANDS:
            assert completed(name, "--ver") == ["--version"]
        assert completed("posnet-translate", "--dtype", "b") == ["bf16"]
        assert completed("posnet-bench", "mod") == ["models"]
        assert completed("posnet-run", "debian.en-d") == ["debian.en-de"]


def test_numbers_have_their_units():
    """And no other number of things is printed with a unit that is plural only, where it can be 1."""
    assert [counted(number, "line") for number in (0, 1, 2000)] == ["0 lines", "1 line", "2,000 lines"]
    assert [counted(number, "entry is", "entries are") for number in (1, 2)] == ["1 entry is", "2 entries are"]
    assert [amount(number, "lines") for number in (1, 1.04, 1.5, 0, 1000)] == [
        *("1 line", "1.0 lines", "1.5 lines", "0 lines", "1,000 lines")
    ]
    files = [path for folder in ("posnet_fairseq", "eval", "data_prep") for path in (ROOT / folder).rglob("*.py")]
    plain = r"\{(?:len\([^{}]*\)|[\w.]*(?:count|cores|threads)\(\))(?::,)?\} (?:lines|threads|GPUs|cores)\b"
    assert not [(path.name, found) for path in files if (found := re.findall(plain, path.read_text()))]


def test_text_is_printed_as_it_is():
    """Consoles of rich that take names for markup or emoji are made nowhere."""
    files = [path for folder in ("posnet_fairseq", "eval", "data_prep") for path in (ROOT / folder).rglob("*.py")]
    assert [path.name for path in files if re.search(r"\bConsole\(|\brprint\(|rich\.markup", path.read_text())] == [
        "progress.py"
    ]
    file = io.StringIO()
    plain_console(file=file, width=80).print("[b]:car:[/b] [link=x]1[/link]")
    assert file.getvalue() == "[b]:car:[/b] [link=x]1[/link]\n"
