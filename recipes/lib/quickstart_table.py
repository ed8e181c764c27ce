"""The quickstart's result: python recipes/lib/quickstart_table.py DATA RUN RUN, the baseline first."""

import contextlib
import re
import statistics
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from posnet_eval.cache import SegmentCache, usual_place
from posnet_eval.loading import load
from posnet_eval.plan import Plan, TestSet
from posnet_eval.report import wording
from posnet_eval.report.publish import check_folder, publish
from posnet_eval.scoring import score
from posnet_fairseq.checkpoints import read_checkpoint
from posnet_fairseq.cli._run import command
from posnet_fairseq.processes import cores
from posnet_fairseq.progress import Report
from posnet_fairseq.training_log import records

SAMPLES = 6


def parameters(run):
    """Trained numbers in a model; a shared embedding counts once."""
    tensors = read_checkpoint(run / "averaged.pt")["model"].values()
    return sum({tensor.data_ptr(): tensor.numel() for tensor in tensors}.values())


def training_speed(run):
    """Median target tokens a second."""
    return statistics.median(values["wps"] for kind, values in records(run / "train.log") if kind == "train_inner")


def decoding_speed(run):
    """Sentences a second, as posnet-translate reported them."""
    (rate,) = re.findall(r"sentences in .* s, ([\d.]+) sentences", (run / "translate.log").read_text())
    return float(rate)


def versions(*packages):
    """Those packages that are installed, with their versions."""
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            yield f"{package} {version(package)}"


def sample_indices(sources):
    """Evenly spread sentences of a length at which a small model shows what it can do."""
    fitting = [i for i, source in enumerate(sources) if 4 <= len(source.split()) <= 10]
    return fitting[:: max(1, len(fitting) // SAMPLES)][:SAMPLES]


def compare(data, runs):
    """Scores of the runs, and of a system that translates nothing.

    Returns:
        :class:`posnet_eval.results.Comparison`, with one test set.
    """
    outputs = {run.name.split("_s1")[0]: (run / "test.de",) for run in runs} | {"source copied": (data / "test.en",)}
    test_set = TestSet("test", ("en", "de"), data / "test.en", (data / "test.de",), outputs=outputs)
    plan = Plan(systems={name: name for name in outputs}, test_sets=(test_set,), baselines=tuple(outputs)[:1])
    return score(plan, load(plan), SegmentCache(usual_place()), Report(), cores())


def cells(comparison, system, metric):
    """A score with its interval, and its p-value with the mark."""
    (test_set,), (baseline,) = comparison.test_sets, comparison.baselines
    found = test_set.scores[system][metric]
    text = f"{found.value:.1f} ±{found.half_width:.1f}"
    if system == baseline:
        return text, ""
    difference = test_set.difference(system, baseline, metric)
    return text, difference.arrow if difference.same else f"{difference.p:.3f}{difference.arrow or ' '}"


@command
def main(arguments=None):
    """Score, print the table, signatures and samples."""
    data, *runs = map(Path, arguments or sys.argv[1:])
    comparison = compare(data, runs)
    (test_set,) = comparison.test_sets
    sources, names = test_set.sources, [name for name in test_set.scores if name != "source copied"]

    title = f"English to German, {len(sources):,} test sentences"
    table = Table(title=title, box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold underline")
    table.add_column("", no_wrap=True)
    for column in ("params", "train\ntokens/s", "decode\nsent./s"):
        table.add_column(column, justify="right", no_wrap=True)
    for info in test_set.metrics:
        table.add_column(info.label, justify="right", no_wrap=True)
        table.add_column("p", justify="right", no_wrap=True)
    for name in test_set.scores:
        speeds = ["", "", ""]
        if name in names:
            run = runs[names.index(name)]
            speeds = [f"{parameters(run) / 1e6:.2f}M", f"{training_speed(run):,.0f}", f"{decoding_speed(run):.1f}"]
        scores = [part for info in test_set.metrics for part in cells(comparison, name, info.name)]
        table.add_row(name, *speeds, *scores)
    console = Console(highlight=False)
    console.print(table)
    console.print(f"± 95% interval. p: paired bootstrap against {names[0]}, ↑ better, ↓ worse where p ≤ .05.")
    for signature in wording.signatures(comparison):
        console.print(signature, soft_wrap=True)
    console.print(f"seed 1, {', '.join(versions('posnet', 've-fairseq', 'fairseq-fixed', 'torch'))}")
    width = max(map(len, [*names, "reference"]))
    outputs = {name: test_set.outputs[name][0] for name in names}
    for index in sample_indices(sources):
        console.print()
        for name, lines in {"source": sources, **outputs, "reference": test_set.references[0]}.items():
            console.print(f"{name:>{width}}  {escape(lines[index])}", soft_wrap=True)
    report = runs[0].parent / "report"
    check_folder(report)
    publish(comparison, report)
    console.print(f"\nreport: {report / 'report.html'}", soft_wrap=True)


if __name__ == "__main__":
    main()
