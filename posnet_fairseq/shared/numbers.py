"""Ranges of numbers on a command line."""

import argparse

from posnet_fairseq.shared.errors import UsageError, flag


def check_numbers(options: argparse.Namespace, **limits: tuple[float, float]) -> None:
    """Refuse numbers that are out of range.

    Args:
        options: of the command line.
        limits: for the name of each option the least and the largest number that it, or each of several, may be.

    Raises:
        UsageError: one is less or more, or no number at all (nan).
    """
    for name, (least, most) in limits.items():
        given = getattr(options, name)
        for number in given if isinstance(given, list) else [given]:
            if not least <= number <= most:
                raise UsageError(f"{flag(name)} {number}: give {least} or more, and at most {most:,}.")
