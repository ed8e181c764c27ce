"""Options that several commands share, and the decorator that parses a command line."""

import argparse
import contextlib
import functools
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from posnet_fairseq._version import __version__
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.user_dir import import_user_dir

FAIRSEQS = ("ve-fairseq", "fairseq-fixed", "fairseq")  # distributions of fairseq; one is installed


def parsed_by(
    make_parser: Callable[[], argparse.ArgumentParser], *, prints_result: bool = True, has_mixers: bool = False
) -> Callable[[Callable[[argparse.Namespace], None]], Callable[..., None]]:
    """Decorate a function of the options of a command, which becomes a :func:`command` of its arguments.

    ``--version`` and ``--quiet`` are added. The decorated function has the attribute ``make_parser``, a function that
    returns the whole parser.

    Args:
        make_parser: returns the parser of the command's own options.
        prints_result: whether standard output is the command's result. If not, ``--quiet`` silences that, too.
        has_mixers: whether ``--user-dir`` is an option as well, whose folder is imported before the function is called.
    """

    def whole_parser() -> argparse.ArgumentParser:
        parser = make_parser()
        what = "print the versions of posnet, torch and fairseq, and exit"
        parser.add_argument("--version", action=_Version, help=what)
        _add_common(parser, has_mixers)
        parser.set_defaults(quiet=False)
        # argparse's own is silent about a full disk or a missing reader where the text is longer than a buffer.
        vars(parser)["print_help"] = lambda file=None: print(parser.format_help(), end="", file=file)
        return parser

    def decorate(main: Callable[[argparse.Namespace], None]) -> Callable[..., None]:
        @functools.wraps(main)
        def run(arguments: Sequence[str] | None = None) -> None:
            options = whole_parser().parse_args(arguments)
            quiet = vars(options).pop("quiet")  # results do not depend on it
            if has_mixers and (folder := vars(options).pop("user_dir", None)):
                import_user_dir(folder)
            with contextlib.ExitStack() as streams:
                if quiet:
                    nowhere = streams.enter_context(open(os.devnull, "w", encoding="utf-8", errors="backslashreplace"))
                    streams.enter_context(contextlib.redirect_stderr(nowhere))
                    if not prints_result:
                        streams.enter_context(contextlib.redirect_stdout(nowhere))
                main(options)

        vars(run)["make_parser"] = whole_parser
        return command(run)

    return decorate


def versions() -> str:
    """Return posnet, torch and fairseq with their versions, in one line. Nothing is imported."""
    from posnet_fairseq.shared.records import installed_versions  # when it is asked for

    found, texts = installed_versions("torch", *FAIRSEQS), [f"posnet {__version__}"]
    for label, names in (("torch", ("torch",)), ("fairseq", FAIRSEQS)):
        there = (f"{name} {found[name]}" for name in names if name in found)
        texts.append(next(there, f"{label} not installed"))
    return ", ".join(texts)


def add_device_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--device``, which is None unless it is given, and ``--cpu``, which is short for one."""
    device = parser.add_mutually_exclusive_group()
    what = "cpu, cuda, or one of several GPUs, such as cuda:1 (default: cuda if there is a GPU, else cpu)"
    device.add_argument("--device", type=_device, metavar="DEVICE", help=what)
    device.add_argument("--cpu", action="store_const", const="cpu", dest="device", help="as --device cpu")


def add_resume_option(parser: Any) -> None:
    """Add ``--resume`` to a parser, or to a group of its options."""
    parser.add_argument(
        "--resume",
        action="store_true",
        help="resume from OUTPUT.partial, where an interrupted command has left its finished translations, and refuse "
        "those of another command. Without this option the command resumes its own, and replaces those of another",
    )


def add_grid_options(parser: Any, grid: tuple[int, int] | None, extra_tokens: int) -> None:
    """Add ``--grid`` and ``--extra-tokens`` with their defaults to a parser, or to a group of its options."""
    shown = "" if grid is None else f" (default: {grid[0]}x{grid[1]})"
    what = f"rows and columns of tokens, such as 14x14{shown}"
    parser.add_argument("--grid", type=_grid, default=grid, metavar="RxC", help=what)
    what = f"E, tokens of no place in front of them (default: {extra_tokens})"
    parser.add_argument("--extra-tokens", type=int, default=extra_tokens, metavar="E", help=what)


def _grid(text: str) -> tuple[int, int]:
    sizes = re.fullmatch(r"([1-9]\d{0,2})x([1-9]\d{0,2})", text)
    if sizes is None:
        raise argparse.ArgumentTypeError(f"{text!r:.50}: give rows and columns, 1 to 999 each, such as 14x14.")
    return int(sizes[1]), int(sizes[2])


def _device(text: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", text):
        raise argparse.ArgumentTypeError(f"{text!r:.50}: give cpu, cuda, or one of several GPUs, such as cuda:1.")
    return text


class _Version(argparse.Action):
    """Print the versions, which are looked up only then."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, default=argparse.SUPPRESS, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(versions())
        parser.exit()


def _add_common(parser: argparse.ArgumentParser, has_mixers: bool) -> None:
    """Add ``--quiet`` and ``--user-dir``, without defaults, to a parser and to those of its subcommands."""
    what = "print results and errors only, no progress or remarks"
    parser.add_argument("--quiet", action="store_true", default=argparse.SUPPRESS, help=what)
    if has_mixers:
        what = "folder that registers mixers of your own, as for fairseq-train"
        parser.add_argument("--user-dir", metavar="FOLDER", default=argparse.SUPPRESS, help=what)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subcommand in action.choices.values():
                _add_common(subcommand, has_mixers)
