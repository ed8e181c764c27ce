"""posnet-score against sacreBLEU's own comparison of systems, on real outputs."""

import shlex
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.table import Table
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest, Result

from posnet_eval.inputs.plan import SEED
from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import MetricOptions, Segment
from posnet_eval.statistics import significance
from posnet_fairseq.bench import wmt17
from posnet_fairseq.bench.comet import against_library
from posnet_fairseq.bench.commands import CommandCost, measure
from posnet_fairseq.bench.tables import mebibytes, table
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import write_lines

METRICS = {"bleu": BLEU, "chrf": CHRF}


class ResamplingTimes(NamedTuple):
    """Seconds of posnet and of sacreBLEU, and whether all p are equal."""

    ours: float
    theirs: float
    equal: bool


def texts(systems: int) -> tuple[list[str], dict[str, list[str]]]:
    """The lines of the reference and of the first systems of WMT17."""
    reference, outputs = wmt17.outputs()
    return reference, dict(list(outputs.items())[:systems])


def resampling(name: str, systems: int, resamples: int) -> ResamplingTimes:
    """Time resampling and testing alone, of systems whose statistics are known.

    Args:
        name: one of :data:`METRICS`.
        systems: number of systems; the first is the baseline.
        resamples: B.
    """
    reference, outputs = texts(systems)
    metric, rows = get_metric(name, MetricOptions()), list[np.ndarray]()
    for lines in outputs.values():
        rows.append(np.empty((len(reference), metric.width)))
        items = [Segment("", *pair) for pair in zip(lines, zip(reference, strict=True), strict=True)]
        for places, numbers in metric.statistics(items):
            rows[-1][places] = numbers
    start = time.perf_counter()
    sums = significance.bootstrap_sums(np.concatenate(rows, axis=1), resamples, SEED)
    samples = metric.corpus(sums.reshape(resamples, systems, -1))
    scores = metric.corpus(np.stack([one.sum(0) for one in rows]))
    found = [
        significance.compare(metric, (scores[a], scores[0]), (samples[:, a], samples[:, 0]), same=False)
        for a in range(1, systems)
    ]
    ours = time.perf_counter() - start

    theirs = METRICS[name](references=[reference])
    start = time.perf_counter()
    test = PairedTest(list(outputs.items()), {name: theirs}, None, test_type="bs", n_samples=resamples)
    _, results = test()
    whole = time.perf_counter() - start
    start = time.perf_counter()
    for lines in outputs.values():
        theirs._extract_corpus_statistics(lines, None)
    counting = time.perf_counter() - start
    (key,) = set(results) - {"System"}
    equal = [one.p for one in found] == [result.p_value for result in results[key][1:] if isinstance(result, Result)]
    return ResamplingTimes(ours, whole - counting, equal)


def whole_calls(systems: int, resamples: int, processes: int, folder: Path) -> tuple[CommandCost, CommandCost]:
    """Costs of posnet-score, with its report and without a cache, and of sacreBLEU, from start to table.

    Args:
        systems: number of systems.
        resamples: B.
        processes: of each command.
        folder: for the texts.
    """
    reference, outputs = texts(systems)
    write_lines(folder / "ref.de", reference)
    for name, lines in outputs.items():
        write_lines(folder / f"{name}.txt", lines)
    files = " ".join(shlex.quote(str(folder / f"{name}.txt")) for name in outputs)
    known, cache = (shlex.quote(str(folder / name)) for name in ("ref.de", f"cache-{resamples}-{processes}"))
    ours = (
        f"posnet-score --reference {known} --system {files} --resamples {resamples} --workers {processes} "
        f"--cache {cache} --out {shlex.quote(str(folder / 'report'))}"
    )
    theirs = (
        f"sacrebleu {known} -i {files} -m bleu chrf --paired-bs --paired-bs-n {resamples} --paired-jobs {processes}"
    )
    return measure([ours]), measure([theirs])


def tables(options: Namespace) -> Iterator[Table | str]:
    """Yield what ``posnet-bench score`` prints.

    Args:
        options: of the command line.

    Raises:
        UsageError: ``--systems`` is less than 2 or more than WMT17 has.
    """
    if not 2 <= options.systems <= wmt17.SYSTEMS:
        raise UsageError(f"--systems {options.systems}: give 2 to {wmt17.SYSTEMS}.")
    if options.comet_model:
        yield _comet(options)
        return
    resampled = table(f"Resampling and testing {options.systems} systems", "posnet\ns", "sacreBLEU\ns", "×", "p")
    for name in METRICS:
        for resamples in options.resamples:
            ours, theirs, equal = resampling(name, options.systems, resamples)
            row = f"{ours:.2f}", f"{theirs:.1f}", f"{theirs / ours:.0f}", "the same" if equal else "NOT THE SAME"
            resampled.add_row(f"{name}, B = {resamples:,}", *row)
    yield resampled
    columns = "posnet\ns", "sacreBLEU\ns", "×", "posnet\nMiB", "sacreBLEU\nMiB"
    whole = table(f"BLEU and chrF of {options.systems} systems, from start to table, without a cache", *columns)
    for resamples in options.resamples:
        for processes in options.processes:
            with tempfile.TemporaryDirectory() as folder:
                own, other = whole_calls(options.systems, resamples, processes, Path(folder))
            seconds = f"{own.seconds:.1f}", f"{other.seconds:.1f}", f"{other.seconds / own.seconds:.1f}"
            memory = mebibytes(own.peak), mebibytes(other.peak)
            whole.add_row(f"B = {resamples:,}, processes: {processes}", *seconds, *memory)
    yield whole


def _comet(options: Namespace) -> Table:
    reference, outputs = wmt17.outputs()
    times = against_library(
        next(iter(outputs.values())),  # as the source: its words do not matter to the time
        reference,
        options.comet_model,
        options.comet_encoder,
        options.systems,
        options.segments,
    )
    columns = "posnet\nCPU s", "COMET's API\nCPU s", "×", "largest\ndifference"
    shown = table(f"COMET of {options.systems} systems, {options.segments} lines", *columns)
    ratio = f"{times.theirs / times.ours:.1f}"
    shown.add_row(options.comet_model, f"{times.ours:.1f}", f"{times.theirs:.1f}", ratio, f"{times.difference:.0e}")
    return shown
