"""posnet-score: many systems, several metrics, and which differences are more than chance."""

import itertools

from rich.console import Console
from rich.markup import escape

from posnet_eval.command_line import parse
from posnet_eval.inputs.loading import load
from posnet_eval.report import wording
from posnet_eval.report.publish import check, publish
from posnet_eval.report.tables import terminal
from posnet_eval.statistics.cache import SegmentCache
from posnet_eval.statistics.scoring import score
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import visible
from posnet_fairseq.shared.files import check_stdout
from posnet_fairseq.shared.progress import ProgressReporter

MOST_REMARKS = 12  # on a terminal


@command
def main(arguments=None):
    """Entry point of posnet-score."""
    options, plan = parse(arguments)
    report = ProgressReporter()
    texts = load(plan, options.skip_missing)
    if options.out:
        check(options.out, _inputs(options, plan))
    else:
        check_stdout()
    cache = SegmentCache(options.cache)
    comparison = score(plan, texts, cache, report, options.workers, options.cpu, options.cached_only)
    if cache.full:
        report.say(f"the cache {cache.path} could not be written ({cache.full}): the next run computes this again.")
    _show(comparison)
    if options.out:
        publish(comparison, options.out)
        report.say(f"report: {options.out / 'report.html'} (and .md, .tex, .csv, .json)")


def _inputs(options, plan):
    """Paths of all files that are read."""
    files = [options.config]
    for test_set in plan.test_sets:
        files += [test_set.source, *test_set.references, *itertools.chain(*test_set.outputs.values())]
    return [path for path in files if path]


def _show(comparison):
    console = Console(highlight=False)
    for table in terminal(comparison):
        # Where it does not fit, it runs over: made to fit, it would lose figures.
        options = console.options.update(max_width=10**6)
        console.width = max(console.width, console.measure(table, options=options).minimum)
        console.print(table)
        console.print()
    lines = [*wording.legend(comparison), *wording.signatures(comparison)]
    for test_set in comparison.test_sets:
        lines += [f"missing: {system} on {test_set.name}: {why}" for system, why in test_set.missing.items()]
    remarks = [(test_set, remark) for test_set in comparison.test_sets for remark in test_set.remarks]
    for test_set, remark in remarks[:MOST_REMARKS]:
        numbers = f" ({', '.join(map(str, remark.lines))})" if remark.lines else ""
        lines.append(f"note: {remark.system} on {test_set.name}: {remark.text}{numbers}")
    if len(remarks) > MOST_REMARKS:
        lines.append(f"note: {len(remarks) - MOST_REMARKS} more remarks are in the report that --out writes")
    for line in lines:
        console.print(escape(visible(line)), soft_wrap=True)
