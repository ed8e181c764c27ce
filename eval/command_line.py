"""The command line of posnet-score."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from posnet_eval.inputs.configuration import read_plan
from posnet_eval.inputs.plan import MODELS, RESAMPLES, SEED, SETTINGS, TESTS, TRIALS, Plan, plan_of_one_test_set
from posnet_eval.metrics import METRICS
from posnet_eval.metrics.base import MetricOptions
from posnet_eval.statistics.cache import default_path
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.files import a_path
from posnet_fairseq.shared.processes import check_workers, cores
from posnet_fairseq.shared.progress import shown

_TEST_SET = ("source", "reference", "test_set", "language_pair", "system")  # options that a configuration file replaces


def plan_of(options: argparse.Namespace) -> Plan:
    """Return the plan that the options of a command line make."""
    check_workers(options.workers)
    beside = [flag(name) for name in _TEST_SET if getattr(options, name)]
    if options.config and beside:
        raise UsageError(f"{', '.join(beside)} beside --config: put it into {options.config}, or leave --config out.")
    plan = read_plan(options.config) if options.config else _plan_of_files(options)
    given = {name: getattr(options, name) for name in SETTINGS}  # flags have precedence over the file
    if options.baseline or options.baseline2:
        first = options.baseline or next(iter(plan.baselines), None)
        given["baselines"] = tuple(name for name in (first, options.baseline2) if name)
    return replace(plan, **{name: value for name, value in given.items() if value is not None})


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of posnet-score's options."""
    parser = argparse.ArgumentParser(
        prog="posnet-score",
        description="Score systems on test sets and test which differences are significant. Statistics are cached: an "
        "interrupted run continues where it stopped.",
    )
    parser.add_argument("--config", type=a_path, help="YAML file of a comparison: several test sets, labels, seeds")
    parser.add_argument("--source", type=a_path, help="source text, which COMET needs")
    parser.add_argument("--reference", type=a_path, nargs="+", help="reference translation, or several")
    parser.add_argument("-t", "--test-set", help="one of sacreBLEU's test sets instead of these files, as wmt14/full")
    parser.add_argument(
        "-l", "--language-pair", help="as en-de (default: two-letter endings of --source and --reference)"
    )
    parser.add_argument(
        "--system",
        nargs="+",
        metavar="NAME=FILE[,FILE]",
        help="outputs: plain text or a log of fairseq-generate; several files are runs (seeds) of a system",
    )
    parser.add_argument("--baseline", help="system that † marks differences from (default: the first)")
    parser.add_argument("--baseline2", help="system that ‡ marks differences from")
    parser.add_argument("--metrics", type=_names, help=f"names, of {','.join(METRICS)} (default: bleu,chrf)")
    parser.add_argument("--out", type=a_path, help="folder for the report: HTML, Markdown, LaTeX, CSV, TSV and JSON")
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of a table")
    parser.add_argument("--latex-intervals", action="store_true", help="show 95%% intervals in the LaTeX table, too")
    tests = ", ".join(f"{name}: {text}" for name, text in TESTS.items())
    parser.add_argument(
        "--test",
        choices=TESTS,
        help=f"{tests}; both over sentences only, with sacreBLEU's p (default: over sentences and seeds if a system "
        "has several runs, else bs)",
    )
    parser.add_argument("--resamples", type=int, help=f"number of resamples of the bootstrap (default: {RESAMPLES})")
    parser.add_argument("--trials", type=int, help=f"number of trials of approximate randomization (default: {TRIALS})")
    parser.add_argument("--seed", type=int, help=f"seed of both tests (default: {SEED}, sacreBLEU's)")
    parser.add_argument("-lc", "--lowercase", action="store_true", default=None, help="compare lowercased text")
    parser.add_argument("--tokenize", help="sacreBLEU's tokenizer for BLEU (default: by the target language)")
    defaults = MetricOptions()
    for name in MODELS[:2]:
        text = f"name on the Hugging Face hub, or folder (default: {getattr(defaults, name)})"
        parser.add_argument(flag(name), metavar="MODEL", help=text)
    parser.add_argument(
        "--comet-encoder",
        metavar="FOLDER",
        help="folder with tokenizer and configuration of COMET's encoder (default: from the hub)",
    )
    parser.add_argument("--skip-missing", action="store_true", help="leave out systems whose files are missing")
    parser.add_argument(
        "--cached-only", action="store_true", help="take all statistics from the cache and compute none"
    )
    parser.add_argument("--cache", type=a_path, help=f"file of cached statistics (default: {default_path()})")
    parser.add_argument("--cpu", action="store_true", help="do not use GPUs")
    parser.add_argument("--workers", type=int, default=cores(), help="number of processes (default: one for each core)")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


def _plan_of_files(options: argparse.Namespace) -> Plan:
    outputs = _outputs(options.system or ())
    references = tuple(options.reference or ())
    return plan_of_one_test_set(outputs, references, options.source, options.test_set, options.language_pair)


def _outputs(given: Sequence[str]) -> dict[str, tuple[Path, ...]]:
    """Return {name: files}. Systems given without names get those that :func:`_distinct_names` makes of their files."""
    named: list[tuple[str, list[str]]] = []
    for text in given:
        name, equals, files = text.partition("=")
        if not equals or Path(text).exists():
            name, files = "", text
        named.append((name, [files] if Path(files).exists() else files.split(",")))
    names = iter(_distinct_names([Path(files[0]) for name, files in named if not name]))
    outputs = {shown(name or next(names)): tuple(map(Path, files)) for name, files in named}
    if not outputs or len(outputs) < len(named) or not all(all(files) for _, files in named):
        raise UsageError(
            f"{' '.join(['--system', *given])}: give systems as NAME=FILE, or with several runs NAME=FILE,FILE, each "
            "with a name of its own; or --config FILE."
        )
    return outputs


def _distinct_names(paths: Sequence[Path]) -> list[str]:
    """Return the last parts of each path, without suffix: as few as make all names different."""
    for depth in range(1, max((len(path.parts) for path in paths), default=1) + 1):
        names = ["/".join([*path.parts[:-1], path.stem or "/"][-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
