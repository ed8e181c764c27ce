"""Ranges of numbers on a command line."""

import argparse

from posnet_fairseq.shared.errors import check_range, flag


def check_numbers(options: argparse.Namespace, **limits: tuple[float, float]) -> None:
    """Refuse numbers that are out of range.

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
