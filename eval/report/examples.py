"""Which segments are worth reading: where two systems differ most, a system's best and its worst."""

import numpy as np

COUNT = 5
DIGITS = 6  # scores that differ in later digits only are the same but for rounding


def most_different(test_set, a, b, metric, count=COUNT):
    """The segments where a is better than b by most.

    Several runs have scores of their own but are shown by the text of the first; segments where that text is the same
    for both systems are left out, for there is nothing to see.

    Args:
        test_set: :class:`posnet_eval.statistics.results.TestSetResult`.
        a, b: systems.
        metric: name.
        count: how many at most.

    Returns:
        Indices of segments from 0, the largest difference first, of equal ones the first line first.
    """
    gain = _goodness(test_set, a, metric) - _goodness(test_set, b, metric)
    first, second = test_set.outputs[a][0], test_set.outputs[b][0]
    return [i for i in _largest(gain) if gain[i] > 0 and first[i] != second[i]][:count]


def best(test_set, system, metric, count=COUNT):
    """Indices of the segments with a system's best scores, of equal ones the first line first."""
    return _largest(_goodness(test_set, system, metric))[:count]


def worst(test_set, system, metric, count=COUNT):
    """Indices of the segments with a system's worst scores, of equal ones the first line first."""
    return _largest(-_goodness(test_set, system, metric))[:count]


def _goodness(test_set, system, metric):
    higher_is_better = next(m.higher_is_better for m in test_set.metrics if m.name == metric)
    scores = np.round(np.asarray(test_set.segments[metric][system], dtype=float), DIGITS)
    return scores if higher_is_better else -scores


def _largest(values):
    return np.argsort(-values, kind="stable").tolist()
