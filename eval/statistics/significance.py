"""Significance tests of differences between systems, on resampled corpora that all systems and metrics share.

The paired bootstrap of Koehn (2004) and approximate randomization (Riezler and Maxwell, 2005), with the p-values of
sacreBLEU's PairedTest for an equal seed. A resampled corpus is a row of counts, one for each segment; its statistics,
for all systems at once, are a matrix product.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from posnet_eval.metrics.base import FloatArray, Metric
from posnet_eval.statistics.results import Difference
from posnet_eval.statistics.seeds import Contrast

AT_ONCE = 2**21  # segments of resampled corpora that are held in memory
TAIL = 40  # 1 / 40 of the samples lies below a 95% interval, and 1 / 40 above


def side_by_side(statistics: Iterable[FloatArray]) -> FloatArray:
    """Return (N, F) columns of all runs of several (R, N, K) statistics, as the functions below resample them."""
    return np.concatenate([rows.transpose(1, 0, 2).reshape(rows.shape[1], -1) for rows in statistics], axis=1)


def bootstrap_sums(statistics: FloatArray, resamples: int, seed: int) -> FloatArray:
    """Return (B, F) statistics of B corpora drawn with replacement from N segments of (N, F) statistics."""
    size = len(statistics)
    generator = np.random.default_rng(seed)

    def draw(rows: int) -> NDArray[np.generic]:
        drawn = generator.choice(size, size=(rows, size), replace=True)
        drawn += size * np.arange(rows)[:, None]
        return np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size)

    return _sums(statistics, resamples, draw)


def shuffled_sums(statistics: FloatArray, trials: int, seed: int) -> FloatArray:
    """Return (T, F) statistics of T random halves of N segments, which systems keep when they exchange the others."""
    generator = np.random.default_rng(seed)
    return _sums(statistics, trials, lambda rows: generator.integers(2, size=(rows, len(statistics)), dtype=bool))


def _sums(statistics: FloatArray, rows: int, draw: Callable[[int], NDArray[np.generic]]) -> FloatArray:
    # numpy draws bits 32 at a time: with whole words in every part, the parts equal a single draw
    part = max(32, AT_ONCE // len(statistics) // 32 * 32)
    sums = np.empty((rows, statistics.shape[1]))
    for start in range(0, rows, part):
        stop = min(start + part, rows)
        np.matmul(draw(stop - start).astype(np.float64), statistics, out=sums[start:stop])
    return sums


def interval(samples: FloatArray) -> tuple[float, float]:
    """Return lower and upper end of the middle 95% of (B,) samples."""
    ordered = np.sort(samples)
    cut = len(ordered) // TAIL
    return float(ordered[cut]), float(ordered[-1 - cut])


def compare(
    metric: Metric,
    scores: tuple[FloatArray | float, FloatArray | float],
    resampled: tuple[FloatArray, FloatArray],
    same: bool,
    randomized: tuple[FloatArray, FloatArray] | None = None,
    contrast: Contrast | None = None,
) -> Difference:
    """Return how a system differs from another one.

    Args:
        metric: metric of the scores.
        scores: () scores of the system and of the other.
        resampled: (B,) scores of both on resampled corpora.
        same: whether all their outputs are equal.
        randomized: (1 + T,) scores of both, as observed and after T random exchanges of segments.
        contrast: their difference with the uncertainty of seeds, too; if given, interval and p are its.
    """
    value = float(scores[0] - scores[1])
    differences = resampled[0] - resampled[1]
    low, high = (contrast.low, contrast.high) if contrast else interval(differences)
    magnitudes = np.abs(differences)
    extremes = magnitudes - magnitudes.mean() > abs(value)
    if randomized is not None:
        exchanged = np.abs(randomized[0] - randomized[1])
        extremes = exchanged[1:] > exchanged[0]
    p = contrast.p if contrast else _share(extremes)
    shifted = np.abs(differences - differences.mean()) >= abs(value)
    direction = 1 if metric.higher_is_better else -1
    wins = ((direction * differences > 0).mean() + (direction * differences >= 0).mean()) / 2
    return Difference(
        value=value,
        low=low,
        high=high,
        p=None if same else p,
        p_shift=None if contrast else 1.0 if same else _share(shifted),
        win_rate=float(wins),
        better=direction * int(np.sign(value)),
        same=same,
    )


def _share(extremes: NDArray[np.bool_]) -> float:
    # + 1: the observed corpus is one that chance could have drawn (Phipson and Smyth, 2010)
    return (int(extremes.sum()) + 1) / (len(extremes) + 1)
