"""posnet-score: scores of many systems by several metrics, and which of their differences are significant."""

import itertools
from argparse import Namespace
from pathlib import Path

from rich.console import Console

from posnet_eval.command_line import make_parser, plan_of
from posnet_eval.inputs.loading import load
from posnet_eval.inputs.plan import Plan
from posnet_eval.report.data import as_json
from posnet_eval.report.publish import check, publish
from posnet_eval.report.tables import show
from posnet_eval.statistics.scoring import compare
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.files import check_stdout
from posnet_fairseq.shared.progress import ProgressReporter


@command
@parsed_by(make_parser)
def main(options: Namespace) -> None:
    """Entry point of posnet-score."""
    plan = plan_of(options)
    report = ProgressReporter()
    texts = load(plan, options.skip_missing)
    if options.out:
        check(options.out, _inputs(options, plan))
    else:
        check_stdout()
    result = compare(plan, texts, options.cache, report, options.workers, options.cpu, options.cached_only)
    try:
        if options.out:  # first: perhaps nobody reads what is printed
            publish(result, options.out, options.latex_intervals)
    finally:
        if options.json:
            print(as_json(result), end="")
        else:
            show(result, Console(highlight=False))
    if options.out:
        report.say(f"report: {options.out / 'report.html'} (and .md, .tex, .csv, .json, segments.tsv)")


def _inputs(options: Namespace, plan: Plan) -> list[Path]:
    """Return the paths of all files that are read."""
    files = [options.config]
    for test_set in plan.test_sets:
        files += [test_set.source, *test_set.references, *itertools.chain(*test_set.outputs.values())]
    return [path for path in files if isinstance(path, Path)]
