"""Scores of short and long sentences, from the statistics that are there anyway."""

import re

import numpy as np

from posnet_eval.statistics.results import Bucket

EDGES = (0, 10, 20, 30, 40, 50)  # words from which on a bucket begins; the last one is open

# A word, or a character of a script without spaces.
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0e7f]|[^\s\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
)


def by_length(lines, metrics, statistics):
    """Scores by length.

    Args:
        lines: N lines whose words are counted; characters of scripts without spaces count as words.
        metrics: list of :class:`posnet_eval.metrics.base.Metric`.
        statistics: {metric name: {system: (N, K), mean over runs}}.

    Returns:
        list of :class:`posnet_eval.statistics.results.Bucket`, without empty ones.
    """
    place = np.digitize([len(_WORD.findall(line)) for line in lines], EDGES[1:])
    buckets = []
    for number, start in enumerate(EDGES):
        chosen = place == number
        if not chosen.any():
            continue
        label = f"{start}-{EDGES[number + 1] - 1}" if number + 1 < len(EDGES) else f"{start}+"
        scores = {}
        for metric in metrics:
            for system, rows in statistics[metric.name].items():
                scores.setdefault(system, {})[metric.name] = float(metric.corpus(rows[chosen].sum(0)))
        buckets.append(Bucket(label, int(chosen.sum()), scores))
    return buckets
