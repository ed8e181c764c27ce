"""γ, source tokens per target token: PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 10.

It is a fraction of two whole numbers, so that ⌊γn⌋ is equal in every precision.
"""

from fractions import Fraction

from posnet_fairseq.shared.errors import UsageError

AUTO = "auto"
UNKNOWN = (0, 0)
LOWEST, HIGHEST = Fraction(1, 100), 100


def parse(value: object) -> tuple[int, int] | None:
    """Source and target tokens for a ``--length-ratio``, or None for ``auto``.

    Raises:
        UsageError: it is no number, or an absurd one.
    """
    if value in (None, AUTO):
        return None
    try:
        ratio = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        ratio = Fraction(0)
    if not LOWEST <= ratio <= HIGHEST:
        raise UsageError(
            f"--length-ratio {value}: give a number from {float(LOWEST)} to {HIGHEST}, such as 1.05, or auto."
        )
    ratio = ratio.limit_denominator(10**6)
    return ratio.numerator, ratio.denominator
