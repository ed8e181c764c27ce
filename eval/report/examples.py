"""Choice of the segments to show: where two systems differ most, a system's best and its worst."""

import itertools

import numpy as np
from numpy.typing import NDArray

from posnet_eval.metrics.base import FloatArray
from posnet_eval.statistics.results import TestSetResult

COUNT = 5
DIGITS = 6  # scores that differ in later digits only are equal up to rounding


def most_different(test_set: TestSetResult, a: str, b: str, metric: str, count: int = COUNT) -> list[int]:
    """Return the segments where system a is better than system b by the largest margin.

    Scores are means over runs, but the text shown is that of the first run; segments for which it is equal in both
    systems are left out.

    Args:
        test_set: results on a test set.
        a, b: names of systems.
        metric: name of a metric.
        count: largest number of segments.

    Returns:
        indices of segments from 0, the largest difference first, equal ones in the order of lines.
    """
    gain = _goodness(test_set, a, metric) - _goodness(test_set, b, metric)
    first, second = test_set.outputs[a][0], test_set.outputs[b][0]
    better = np.flatnonzero(gain > 0)
    different = (int(i) for i in better[_largest(gain[better])] if first[i] != second[i])
    return list(itertools.islice(different, count))


def best(test_set: TestSetResult, system: str, metric: str, count: int = COUNT) -> list[int]:
    """Return indices of the segments with a system's best scores, equal ones in the order of lines."""
    return _largest(_goodness(test_set, system, metric))[:count].tolist()


def worst(test_set: TestSetResult, system: str, metric: str, count: int = COUNT) -> list[int]:
    """Return indices of the segments with a system's worst scores, equal ones in the order of lines."""
    return _largest(-_goodness(test_set, system, metric))[:count].tolist()


def _goodness(test_set: TestSetResult, system: str, metric: str) -> FloatArray:
    higher_is_better = next(m.higher_is_better for m in test_set.metrics if m.name == metric)
    scores = np.round(np.asarray(test_set.segments[metric][system], dtype=float), DIGITS)
    return scores if higher_is_better else -scores


def _largest(values: FloatArray) -> NDArray[np.intp]:
    """Return the indices of values from the largest to the smallest, equal ones in their order."""
    return np.argsort(-values, kind="stable")
