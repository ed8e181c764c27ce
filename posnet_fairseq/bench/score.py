"""posnet-score against sacreBLEU's own comparison of systems, on real outputs."""

import shlex
import time

import numpy as np
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from posnet_eval.inputs.plan import SEED
from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import MetricOptions, Segment
from posnet_eval.statistics import significance
from posnet_fairseq.bench import wmt17
from posnet_fairseq.bench.commands import measure
from posnet_fairseq.shared.files import write_lines

METRICS = {"bleu": BLEU, "chrf": CHRF}


def texts(systems):
    """Reference, and so many of WMT17's systems."""
    reference, outputs = wmt17.outputs()
    return reference, dict(list(outputs.items())[:systems])


def resampling(name, systems, resamples):
    """Resampling and testing alone, of systems whose statistics are known.

    Args:
        name: of a metric in `METRICS`.
        systems: how many, the first is the baseline.
        resamples: B.

    Returns:
        seconds of posnet-score, seconds of sacreBLEU, whether all p are the same.
    """
    reference, outputs = texts(systems)
    metric, rows = get_metric(name, MetricOptions()), []
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
    same = [one.p for one in found] == [result.p_value for result in results[key][1:]]
    return ours, whole - counting, same


def whole_calls(systems, resamples, processes, folder):
    """The command lines, from start to table, without a cache.

    Args:
        systems: how many.
        resamples: B.
        processes: of both.
        folder: for the texts.

    Returns:
        two tuples of seconds, CPU seconds and most bytes held at once: of posnet-score (with its report) and of
        sacreBLEU.
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
