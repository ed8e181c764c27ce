"""``python -m posnet_fairseq COMMAND``: posnet's commands by their short names, and their completion in shells."""

import argparse
import importlib.metadata
import re
import sys
from importlib.metadata import EntryPoint

from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import a_path, path_text

SHELLS = ("bash", "zsh", "tcsh")


def commands() -> dict[str, EntryPoint]:
    """Return the console scripts of posnet by their names without ``posnet-``."""
    try:
        scripts = importlib.metadata.distribution("posnet").entry_points.select(group="console_scripts")
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError("posnet is not installed in this environment. Install it: pip install -e .") from error
    return {script.name.removeprefix("posnet-"): script for script in sorted(scripts)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m posnet_fairseq",
        description="Run a command of posnet: python -m posnet_fairseq translate is posnet-translate. Without a "
        "command, list the commands.",
    )
    parser.add_argument(
        "--print-completion",
        choices=SHELLS,
        metavar="SHELL",
        help=f"print what makes a shell complete the options of all commands: one of {', '.join(SHELLS)}. Needs shtab",
    )
    parser.add_argument("command", nargs="?", metavar="COMMAND")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help="arguments of the command")
    return parser


@parsed_by(_parser)
def main(options: argparse.Namespace) -> None:
    """Entry point of ``python -m posnet_fairseq``."""
    known = commands()
    if options.print_completion:
        for script in known.values():
            print(_completion(script.load().make_parser(), options.print_completion))
    elif options.command is None:
        for name, script in known.items():
            about = script.load().make_parser().description
            print(f"{name:13} {re.split(r'(?<=[.;:]) ', about)[0].rstrip('.;:')}")
    elif options.command.removeprefix("posnet-") in known:
        script = known[options.command.removeprefix("posnet-")]
        sys.argv = [script.name, *options.words]
        script.load()()
    else:
        raise UsageError(f"{options.command}: there is no such command. Choose one of {', '.join(known)}.")


def _completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return a script for a shell that completes the options of a command, and paths where it takes them."""
    try:
        import shtab
    except ImportError as error:
        raise UsageError("--print-completion needs shtab. Install it: pip install shtab") from error
    parsers = [parser]
    for one in parsers:
        for action in one._actions:
            if action.type in (path_text, a_path):
                vars(action)["complete"] = shtab.FILE
            action.choices = vars(action).get("completions", action.choices)
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
    return str(shtab.complete(parser, shell))


if __name__ == "__main__":
    main()
