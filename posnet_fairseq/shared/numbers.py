"""Numbers that a user gives: their form and ranges."""

import argparse
import re
from fractions import Fraction
from numbers import Integral, Real

from posnet_fairseq.shared.errors import UsageError, flag

# Of bounded length, as Python would compute for ever at 1e999999999.
_DECIMAL = re.compile(r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,2})?")


def decimal(text: str) -> Fraction:
    """Return the exact value of a number such as 1.05 or 7e-4.

    Args:
        text: at most 40 digits on each side of the point, and an exponent of at most two.

    Raises:
        ValueError: it is no such number.
    """
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"{text!r:.50} is no decimal number")
    return Fraction(text)


def check_range(name: str, number: object, least: float, most: float, whole: bool = False) -> None:
    """Refuse a number that is out of range.

    Args:
        name: what the user calls it.
        number: any value.
        least, most: range, both included.
        whole: refuse fractions.

    Raises:
        UsageError: it is no number, out of range, NaN, or a fraction where none is allowed.
    """
    if isinstance(number, bool) or not isinstance(number, Integral if whole else Real):
        raise UsageError(f"{name} {number!r:.50}: give a {'whole ' if whole else ''}number.")
    if not least <= number <= most:  # type: ignore[operator]  # any Real compares
        raise UsageError(f"{name} {number}: give {least} or more, and at most {most:,}.")


def check_numbers(options: argparse.Namespace, **limits: tuple[float, float]) -> None:
    """Refuse numbers on a command line that are out of range.

    Args:
        options: options of the command line.
        limits: smallest and largest number that is allowed, by name of the option; if an option takes several numbers,
            for each of them.

    Raises:
        UsageError: a number is smaller, larger, or nan.
    """
    for name, (least, most) in limits.items():
        given = getattr(options, name)
        for number in given if isinstance(given, list) else [given]:
            check_range(flag(name), number, least, most)
