"""Values of settings: functions from text to a value, which raise ValueError with what is allowed."""

import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from posnet_fairseq.shared.errors import UsageError, nearest
from posnet_fairseq.shared.schema import decimal

Parse = Callable[[str], Any]


def check_known(given: str, name: str, known: Collection[str], hint: str = "") -> None:
    """Refuse a name that is none of those that are known; ``given`` and the hint are for the sentence."""
    if name not in known:
        raise UsageError(f"{given}: choose one of {' '.join(known)}.{hint or nearest(name, known)}")


def integer(least: int, most: int = 9_999_999) -> Parse:
    """Return the parser of a whole number within limits."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,7}", text) or not least <= int(text) <= most:
            raise ValueError(f"give a whole number, {least} to {most}.")
        return int(text)

    return parse


def _decimal(fits: Callable[[Any], bool], allowed: str) -> Callable[[str], str]:
    """Return the parser of a number that stays as it was written."""

    def parse(text: str) -> str:
        try:
            if fits(decimal(text)):
                return text
        except ValueError:
            pass
        raise ValueError(f"give a number {allowed}.")

    return parse


whole_number = integer(1)
number = _decimal(lambda value: value >= 0, "from 0, as 0.1 or 7e-4")
rate = _decimal(lambda value: value > 0, "above 0, as 7e-4")
fraction = _decimal(lambda value: 0 <= value < 1, "from 0 to below 1, as 0.1")


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


def matching(pattern: str, allowed: str) -> Parse:
    """Return the parser of a text that has a form."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"give {allowed}.")
        return text

    return parse


run_name = matching(
    r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}", "a name of letters, digits, dots, dashes and underscores, at most 200"
)
betas = matching(r"\((0|0?\.[0-9]+), ?(0|0?\.[0-9]+)\)", "two numbers below 1, as (0.9,0.98)")


def folder(text: str) -> Path:
    """Return the path of a folder, there or not."""
    return Path(os.path.abspath(text))


def names(text: str) -> tuple[str, ...]:
    """Return names between spaces or commas."""
    return tuple(text.replace(",", " ").split())


def several(parse: Parse) -> Callable[[str], tuple[str, ...]]:
    """Return the parser of one or more values between spaces or commas, each once, as they were written.

    Its ValueError names the word that is not allowed.
    """

    def parse_all(text: str) -> tuple[str, ...]:
        words = names(text)
        if not words or len(set(words)) < len(words):
            raise ValueError("give one or more values between spaces or commas, each once.")
        for word in words:
            try:
                parse(word)
            except ValueError as error:
                raise ValueError(word, str(error)) from error
        return words

    return parse_all


def seed_numbers(text: str) -> tuple[int, ...]:
    """Return one or more seeds between spaces or commas, each once."""
    return tuple(map(int, several(whole_number)(text)))
