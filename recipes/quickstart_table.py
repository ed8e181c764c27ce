"""The quickstart's result: python recipes/quickstart_table.py DATA RUN RUN, the baseline first."""

import contextlib
import logging
import re
import statistics
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from posnet_eval.compare import compare
from posnet_fairseq.checkpoints import read_checkpoint
from posnet_fairseq.cli._run import command
from posnet_fairseq.files import read_parallel
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


def cells(score):
    """A score with its interval, and its p-value with the mark."""
    return f"{score.value:.1f} ±{score.interval:.1f}", "" if score.p is None else f"{score.p:.3f}{score.mark or ' '}"


@command
def main(arguments=None):
    """Score, print the table, signatures and samples."""
    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    data, *runs = map(Path, arguments or sys.argv[1:])
    files = [data / "test.en", data / "test.de", *(run / "test.de" for run in runs)]
    sources, reference, *hypotheses = read_parallel(*files)
    names = [run.name.split("_s1")[0] for run in runs]
    outputs = dict(zip(names, hypotheses, strict=True))
    scores, signatures = compare(outputs | {"source copied": sources}, reference)

    title = f"English to German, {len(sources):,} test sentences"
    table = Table(title=title, box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold underline")
    table.add_column("", no_wrap=True)
    for column in ("params", "train\ntokens/s", "decode\nsent./s"):
        table.add_column(column, justify="right", no_wrap=True)
    for metric in signatures:
        table.add_column(metric, justify="right", no_wrap=True)
        table.add_column("p", justify="right", no_wrap=True)
    for name in scores:
        speeds = ["", "", ""]
        if name in names:
            run = runs[names.index(name)]
            speeds = [f"{parameters(run) / 1e6:.2f}M", f"{training_speed(run):,.0f}", f"{decoding_speed(run):.1f}"]
        table.add_row(name, *speeds, *(part for score in scores[name].values() for part in cells(score)))
    console = Console(highlight=False)
    console.print(table)
    console.print(f"± 95% interval. p: paired bootstrap against {names[0]}, ↑ better, ↓ worse where p ≤ .05.")
    for metric, signature in signatures.items():
        console.print(f"{metric}: {signature}", soft_wrap=True)
    console.print(f"seed 1, {', '.join(versions('posnet', 've-fairseq', 'fairseq-fixed', 'torch'))}")
    width = max(map(len, [*names, "reference"]))
    for index in sample_indices(sources):
        console.print()
        rows = {"source": sources, **outputs, "reference": reference}
        for name, lines in rows.items():
            console.print(f"{name:>{width}}  {escape(lines[index])}", soft_wrap=True)


if __name__ == "__main__":
    main()
