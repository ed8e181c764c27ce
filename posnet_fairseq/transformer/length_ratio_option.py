"""γ, source tokens per target token: PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 10.

It is kept as the fraction of two whole numbers, so that ⌊γn⌋ is the same in every precision.
"""

from fractions import Fraction

from posnet_fairseq.shared.errors import UsageError

Ratio = tuple[int, int]  # source tokens, target tokens

AUTO = "auto"
UNKNOWN: Ratio = (0, 0)
LOWEST, HIGHEST = Fraction(1, 100), 100


def parse(value: object) -> Ratio | None:
    """Return source and target tokens for a ``--length-ratio``, or None for ``auto``."""
    if value in (None, AUTO):
        return None
    try:
        ratio = Fraction(float(str(value)))
    except (OverflowError, ValueError):
        ratio = Fraction(0)
    if not LOWEST <= ratio <= HIGHEST:
        raise UsageError(
            f"--length-ratio {value!s:.50}: give a number from {float(LOWEST)} to {HIGHEST}, such as 1.05, or auto."
        )
    ratio = ratio.limit_denominator(10**6)
    return ratio.numerator, ratio.denominator
