"""Ranges of numbers that a user gives."""

import argparse
from numbers import Integral, Real

from posnet_fairseq.shared.errors import UsageError, flag


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
