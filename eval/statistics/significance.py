"""Which differences between systems are more than chance: resampled corpora, shared by all systems and metrics.

The paired bootstrap of Koehn (2004) and approximate randomisation (Riezler and Maxwell, 2005), with the numbers that
sacreBLEU's PairedTest gives for the same seed. A resampled corpus is a row of counts, how often each segment is in
it; its statistics, of all systems at once, are a matrix product.
"""

import numpy as np

from posnet_eval.statistics.results import Difference

AT_ONCE = 2**21  # segments of resampled corpora that are held at once
TAIL = 40  # one part of so many lies below a 95% interval, one above


def bootstrap_sums(statistics, resamples, seed):
    """Statistics of corpora drawn from the segments with replacement.

    Args:
        statistics: (N, F) columns of all systems and metrics.
        resamples: B.
        seed: of the draws.

    Returns:
        (B, F).
    """
    size = len(statistics)
    generator = np.random.default_rng(seed)

    def draw(rows):
        drawn = generator.choice(size, size=(rows, size), replace=True)
        drawn += size * np.arange(rows)[:, None]
        return np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size)

    return _sums(statistics, resamples, draw)


def shuffled_sums(statistics, trials, seed):
    """Statistics of random halves of the segments: those that systems keep when they exchange the others.

    Args:
        statistics: (N, F) columns of all systems and metrics.
        trials: T.
        seed: of the choices.

    Returns:
        (T, F).
    """
    generator = np.random.default_rng(seed)
    return _sums(statistics, trials, lambda rows: generator.integers(2, size=(rows, len(statistics)), dtype=bool))


def _sums(statistics, rows, draw):
    # numpy draws bits 32 at a time: with whole words in every part, the parts are those of a single draw
    part = max(32, AT_ONCE // len(statistics) // 32 * 32)
    sums = np.empty((rows, statistics.shape[1]))
    for start in range(0, rows, part):
        stop = min(start + part, rows)
        np.matmul(draw(stop - start).astype(np.float64), statistics, out=sums[start:stop])
    return sums


def interval(samples):
    """Lower and upper end of the middle 95% of (B,) samples."""
    ordered = np.sort(samples)
    cut = len(ordered) // TAIL
    return float(ordered[cut]), float(ordered[-1 - cut])


def compare(metric, scores, resampled, same, randomised=None):
    """How a system differs from another.

    Args:
        metric: :class:`posnet_eval.metrics.base.Metric`.
        scores: of system and other.
        resampled: pair of (B,) scores of both on the same resampled corpora.
        same: whether all their outputs are the same.
        randomised: pair of (T,) scores after random exchanges of segments; their p is taken instead of the bootstrap's.

    Returns:
        :class:`posnet_eval.statistics.results.Difference`.
    """
    value = float(scores[0] - scores[1])
    differences = resampled[0] - resampled[1]
    low, high = interval(differences)
    magnitudes = np.abs(differences)
    if randomised is None:
        extremes = magnitudes - magnitudes.mean() > abs(value)
    else:
        extremes = np.abs(randomised[0] - randomised[1]) > abs(value)
    shifted = np.abs(differences - differences.mean()) >= abs(value)
    direction = 1 if metric.higher_is_better else -1
    wins = ((direction * differences > 0).mean() + (direction * differences >= 0).mean()) / 2
    return Difference(
        value=value,
        low=low,
        high=high,
        p=None if same else _share(extremes),
        p_shift=1.0 if same else _share(shifted),
        win_rate=float(wins),
        better=direction * int(np.sign(value)),
        same=same,
    )


def _share(extremes):
    # + 1: the observed corpus is one of those that chance could have drawn (Phipson and Smyth, 2010)
    return (int(extremes.sum()) + 1) / (len(extremes) + 1)
