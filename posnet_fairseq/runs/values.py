"""Values of settings: functions from text to a value, which raise ValueError with what is allowed."""

import difflib
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from posnet_fairseq.shared.schema import decimal

Parse = Callable[[str], Any]


def nearest(word: str, known: Collection[str]) -> str:
    """The end of a sentence about an unknown name: " Did you mean ...?", "" if nothing is near."""
    found = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean {found[0]}?" if found else ""


def whole_number(text: str) -> int:
    """A whole number, 1 to 9999999."""
    if not re.fullmatch(r"[1-9][0-9]{0,6}", text):
        raise ValueError("give a whole number, 1 to 9999999.")
    return int(text)


def number(text: str) -> str:
    """A number that is not negative, as it was written."""
    try:
        if decimal(text) >= 0:
            return text
    except ValueError:
        pass
    raise ValueError("give a number, as 0.1 or 7e-4.")


def switch(text: str) -> bool:
    """Whether a switch is on, as YAML and shells write it."""
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise ValueError(f"give one of {' '.join(words)}.")
    return words[text.lower()]


def one_of(*names: str) -> Parse:
    """The parser of a name that must be one of some."""
    return lambda text: choose(text, names)


def choose(text: str, names: Collection[str]) -> str:
    """The name, if it is one of some.

    Raises:
        ValueError: it is not; names all and the nearest.
    """
    if text not in names:
        raise ValueError(f"choose one of {' '.join(names)}.{nearest(text, names)}")
    return text


def run_name(text: str) -> str:
    """A name that can be that of a folder."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}", text):
        raise ValueError("give a name of letters, digits, dots, dashes and underscores, at most 200.")
    return text


def rank(text: str) -> int:
    """The number of a machine, from 0."""
    if not re.fullmatch(r"0|[1-9][0-9]{0,3}", text):
        raise ValueError("give 0, 1, ..., the number of this machine.")
    return int(text)


def port(text: str) -> int:
    """A port, 1 to 65535."""
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text) or int(text) > 65535:
        raise ValueError("give a whole number, 1 to 65535.")
    return int(text)


def rate(text: str) -> str:
    """A number above 0, as it was written."""
    if not float(number(text)) > 0:
        raise ValueError("give a number above 0.")
    return text


def fraction(text: str) -> str:
    """A number from 0 to below 1, as it was written."""
    if not float(number(text)) < 1:
        raise ValueError("give a number below 1.")
    return text


def betas(text: str) -> str:
    """Two numbers below 1 in parentheses, as they were written."""
    if not re.fullmatch(r"\((0|0?\.[0-9]+), ?(0|0?\.[0-9]+)\)", text):
        raise ValueError("give two numbers below 1, as (0.9,0.98).")
    return text


def length(text: str) -> int:
    """A whole number, 0 to 9999999."""
    if not re.fullmatch(r"[0-9]{1,7}", text):
        raise ValueError("give a whole number.")
    return int(text)


def seed_numbers(text: str) -> tuple[int, ...]:
    """One or more seeds between spaces or commas, each once."""
    seeds = text.replace(",", " ").split()
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError("give one or more seeds between spaces, each once.")
    return tuple(_each(whole_number, seeds))


def several(parse: Parse) -> Parse:
    """The parser of one or more values between spaces or commas, each once, as they were written."""

    def parse_all(text: str) -> tuple[str, ...]:
        words = tuple(text.replace(",", " ").split())
        if not words or len(set(words)) < len(words):
            raise ValueError("give one or more values between spaces, each once.")
        _each(parse, words)
        return words

    return parse_all


def _each(parse: Parse, words: Sequence[str]) -> list[Any]:
    """Parsed values; a ValueError names the word that is not allowed."""
    found = []
    for word in words:
        try:
            found.append(parse(word))
        except ValueError as error:
            raise ValueError(word, str(error)) from error
    return found
