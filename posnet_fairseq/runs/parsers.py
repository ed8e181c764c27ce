"""Values of settings: functions from text to a value, which raise ValueError with what is allowed."""

import contextlib
import math
import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from posnet_fairseq.shared.errors import UsageError, nearest

Parse = Callable[[str], Any]


def check_known(given: str, name: str, known: Collection[str], hint: str = "") -> None:
    """Refuse a name that is none of those that are known; ``given`` and the hint are for the sentence."""
    if name not in known:
        raise UsageError(f"{given}: choose one of {' '.join(known)}.{hint or nearest(name, known)}")


def accepting(fits: Callable[[str], Any], otherwise: str, value: Parse = str) -> Parse:
    """Return the parser of a text that fits; others are refused with a sentence, also if ``fits`` cannot tell."""

    def parse(text: str) -> Any:
        with contextlib.suppress(ValueError):
            if fits(text):
                return value(text)
        raise ValueError(f"{otherwise}.")

    return parse


DIGITS = re.compile(r"[0-9]{1,7}")  # of a whole number


def integer(least: int, most: int = 9_999_999) -> Parse:
    """Return the parser of a whole number within limits."""
    return accepting(
        lambda text: DIGITS.fullmatch(text) and least <= int(text) <= most,
        f"give a whole number, {least} to {most}",
        int,
    )


_DECIMAL = re.compile(r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,2})?")


def _float(text: str) -> float:
    """Return a number such as 7e-4, or NaN for others that Python reads: fairseq may not, as ``1_0``."""
    return float(text) if _DECIMAL.fullmatch(text) else math.nan


# Numbers that are no whole ones stay as they were written.
whole_number = integer(1)
number = accepting(lambda text: _float(text) >= 0, "give a number from 0, such as 0.1 or 7e-4")
rate = accepting(lambda text: _float(text) > 0, "give a number above 0, such as 7e-4")
fraction = accepting(lambda text: 0 <= _float(text) < 1, "give a number from 0 to below 1, such as 0.1")
betas = accepting(
    re.compile(r"\((0|0?\.[0-9]+), ?(0|0?\.[0-9]+)\)").fullmatch, "give two numbers below 1, such as (0.9,0.98)"
)
run_name = accepting(
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}").fullmatch,
    "give a name of letters, digits, dots, dashes and underscores, at most 200",
)


def switch(text: str) -> bool:
    """Return whether a switch is on, as YAML writes it."""
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise ValueError(f"give one of {' '.join(words)}.")
    return words[text.lower()]


def one_of(*names: str) -> Parse:
    """Return the parser of a name that must be one of some."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"choose one of {' '.join(names)}.{nearest(text, names)}")
        return text

    return parse


precision = one_of("bf16", "fp16", "fp32")


def folder(text: str) -> Path:
    """Return the path of a folder, there or not. A shell leaves the ~ of --runs=~/runs as it is."""
    return Path(os.path.abspath(os.path.expanduser(text)))


def names(text: str) -> tuple[str, ...]:
    """Return names between spaces or commas."""
    return tuple(text.replace(",", " ").split())


def several(parse: Parse) -> Callable[[str], tuple[str, ...]]:
    """Return the parser of one or more values between spaces or commas, each once, as they were written.

    Its ValueError names the word that is not allowed.
    """

    def parse_all(text: str) -> tuple[str, ...]:
        words, values = names(text), set()
        for word in words:
            try:
                values.add(parse(word))
            except ValueError as error:
                raise ValueError(word, str(error)) from error
        if not words or len(values) < len(words):
            raise ValueError("give one or more values between spaces or commas, each once.")
        return words

    return parse_all


def seed_numbers(text: str) -> tuple[int, ...]:
    """Return one or more seeds between spaces or commas, each once."""
    return tuple(map(int, several(whole_number)(text)))
