"""posnet-score: scores of many systems by several metrics, and which of their differences are significant."""

import argparse
import itertools
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from posnet_eval.inputs import plan as plans
from posnet_eval.inputs.configuration import read_plan
from posnet_eval.inputs.loading import load
from posnet_eval.inputs.plan import Plan, metric_names
from posnet_eval.metrics import METRICS
from posnet_eval.report.publish import as_json, check_report_folder, publish
from posnet_eval.report.tables import show
from posnet_eval.report.wording import whereabouts
from posnet_eval.statistics.cache import default_path
from posnet_eval.statistics.scoring import compare
from posnet_fairseq.shared.common_options import add_device_option, parsed_by
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.files import a_path, check_stdout, distinct_names
from posnet_fairseq.shared.processes import cores
from posnet_fairseq.shared.progress import ProgressReporter, plain_console, shown
from posnet_fairseq.shared.results import leave_result

# Options that a configuration file replaces.
_TEST_SET = ("source", "reference", "test_set", "language_pair", "system", "groups")


def _plan_of(options: argparse.Namespace) -> Plan:
    beside = [flag(name) for name in _TEST_SET if getattr(options, name)]
    if options.config and beside:
        raise UsageError(
            f"{', '.join(beside)} beside --config: write that into {options.config}, or leave --config out."
        )
    if options.config:
        plan = read_plan(options.config)
    else:
        outputs, references = _outputs(options.system or ()), tuple(options.reference or ())
        texts = options.source, options.test_set, options.language_pair, options.groups
        plan = plans.plan_of_one_test_set(outputs, references, *texts)
    # Flags have precedence over the file.
    given = {name: getattr(options, name) for name in (*plans.SETTINGS, *plans.RUNNING)}
    if options.metrics:
        given["metrics"] = metric_names(" ".join(options.metrics))
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
    parser.add_argument("--source", type=a_path, help="source text, which COMET and COMETKiwi need")
    parser.add_argument(
        "--reference",
        type=a_path,
        nargs="+",
        action="extend",
        help="reference translation, or several: an empty line means no reference for that line",
    )
    parser.add_argument("-t", "--test-set", help="one of sacreBLEU's test sets instead, such as wmt14/full")
    parser.add_argument(
        "-l", "--language-pair", help="such as en-de or en-pt-BR (default: endings of --source and --reference)"
    )
    parser.add_argument(
        "--system",
        nargs="+",
        action="extend",
        metavar="NAME=FILE[,FILE]",
        help="outputs: plain text or a log of fairseq-generate; several files are runs (seeds) of a system",
    )
    parser.add_argument(
        "--groups", type=a_path, help="the group of each line, such as its domain: the report has scores of each group"
    )
    parser.add_argument("--baseline", help="system that † marks differences from (default: the first)")
    parser.add_argument("--baseline2", help="system that ‡ marks differences from")
    parser.add_argument("--metrics", nargs="+", help=f"names, of {','.join(METRICS)} (default: bleu,chrf)")
    parser.add_argument("--out", type=a_path, help="folder for the report: HTML, Markdown, LaTeX, CSV, TSV and JSON")
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of a table")
    parser.add_argument("--latex-intervals", action="store_true", help="show 95%% intervals in the LaTeX table, too")
    tests = ", ".join(f"{name}: {text}" for name, text in plans.TESTS.items())
    parser.add_argument(
        "--test",
        choices=plans.TESTS,
        help=f"{tests}; over sentences only, bs and ar with sacreBLEU's p, which for bs marks about 11%% of equally "
        "good translations (default: over sentences and seeds if a system has several runs, else shift)",
    )
    resamples, trials = "number of resamples of the bootstrap", "number of trials of approximate randomization"
    parser.add_argument("--resamples", type=int, help=f"{resamples} (default: {plans.RESAMPLES})")
    parser.add_argument("--trials", type=int, help=f"{trials} (default: {plans.TRIALS})")
    parser.add_argument("--seed", type=int, help=f"seed of both tests (default: {plans.SEED}, sacreBLEU's)")
    parser.add_argument("-lc", "--lowercase", action="store_true", default=None, help="compare lowercased text")
    parser.add_argument("--tokenize", help="sacreBLEU's tokenizer for BLEU (default: by the target language)")
    parser.add_argument(
        "--multi-reference",
        choices=plans.MULTI_REFERENCE,
        help="COMET and BLEURT with several references: mean or largest of a segment's scores (default: mean)",
    )
    plans.add_model_options(parser, plans.MODELS)
    parser.add_argument("--skip-missing", action="store_true", help="leave out systems whose files are missing")
    parser.add_argument(
        "--cached-only", action="store_true", help="take all statistics from the cache and compute none"
    )
    parser.add_argument("--cache", type=a_path, help=f"file of cached statistics (default: {default_path()})")
    add_device_option(parser)
    parser.add_argument("--workers", type=int, default=cores(), help="number of processes (default: one for each core)")
    return parser


def _outputs(given: Sequence[str]) -> dict[str, tuple[Path, ...]]:
    """Return {name: files}. Systems given without names get those that :func:`distinct_names` makes of their files."""
    named: list[tuple[str, list[str]]] = []
    for text in given:
        name, equals, files = text.partition("=")
        if not equals or os.path.exists(text):
            name, files = "", text
        named.append((name, [files] if os.path.exists(files) else files.split(",")))
    unnamed = [Path(files[0]) for name, files in named if not name]
    names = iter(distinct_names([path.parent / path.stem for path in unnamed]))
    outputs = {shown(name or next(names)): tuple(map(Path, files)) for name, files in named}
    if not outputs or len(outputs) < len(named) or not all(all(files) for _, files in named):
        raise UsageError(
            f"{' '.join(['--system', *given])}: give systems as NAME=FILE, or with several runs NAME=FILE,FILE, each "
            "with a name of its own; or --config FILE."
        )
    return outputs


@parsed_by(make_parser)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-score."""
    if options.groups and not (options.out or options.json):
        raise UsageError("--groups: scores of groups are in the report. Add --out FOLDER, or --json.")
    if options.latex_intervals and not options.out:
        raise UsageError("--latex-intervals: the LaTeX table is in the report. Add --out FOLDER.")
    plan = _plan_of(options)
    report = ProgressReporter()
    texts = load(plan)
    if options.out:
        files = [options.config]
        for test_set in plan.test_sets:
            files += [test_set.source, test_set.groups, *test_set.references]
            files += itertools.chain(*test_set.outputs.values())
        check_report_folder(options.out, [path for path in files if isinstance(path, Path)])
    else:
        check_stdout()
    result = compare(plan, texts, report)
    left = 0
    try:
        if options.out:  # first: perhaps nobody reads what is printed
            publish(result, options.out, options.latex_intervals)
    finally:
        if options.json:
            print(as_json(result), end="")
        else:
            left = show(result, plain_console(), bool(options.out))
    if options.out:
        leave_result(remarks_left=left)
        report.say(whereabouts(options.out, left))
