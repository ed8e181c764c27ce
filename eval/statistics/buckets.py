"""Scores of short and long sentences, from the statistics of segments."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from posnet_eval.metrics.base import FloatArray, Metric
from posnet_eval.statistics.results import Bucket

EDGES = (0, 10, 20, 30, 40, 50)  # words at which buckets begin; the last one is open

# A word, or a character of a script without spaces.
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0e7f]|[^\s\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
)


def by_length(
    lines: Sequence[str], metrics: Sequence[Metric], statistics: Mapping[str, Mapping[str, FloatArray]]
) -> list[Bucket]:
    """Return scores by sentence length, without empty buckets.

    Args:
        lines: N lines whose words are counted; characters of scripts without spaces count as words.
        metrics: metrics to compute.
        statistics: {metric name: {system: (N, K) means over runs}}.
    """
    place = np.digitize([len(_WORD.findall(line)) for line in lines], EDGES[1:])
    buckets = []
    for number, start in enumerate(EDGES):
        chosen = place == number
        if not chosen.any():
            continue
        label = f"{start}-{EDGES[number + 1] - 1}" if number + 1 < len(EDGES) else f"{start}+"
        scores: dict[str, dict[str, float]] = {}
        for metric in metrics:
            for system, rows in statistics[metric.name].items():
                scores.setdefault(system, {})[metric.name] = float(metric.corpus(rows[chosen].sum(0)))
        buckets.append(Bucket(label, int(chosen.sum()), scores))
    return buckets
