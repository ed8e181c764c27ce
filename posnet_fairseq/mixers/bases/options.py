"""Options that several mixers read, declared once, and their checks."""

import enum
import re
from dataclasses import dataclass, field, fields
from typing import get_args

from posnet_fairseq.shared.errors import UsageError, flag

# Beyond it a sentence would need more tokens than any model reads; tables grow with it.
MOST_OFFSETS = 2**16


def option(help_text, default, **metadata):
    """A field of a mixer's Config. `default` holds where neither the user nor the size says otherwise."""
    return field(default=default, metadata={"help": help_text, **metadata})


def kind(option):
    """The type of an option's values: of a dataclasses.Field that may also be None."""
    return next(kind for kind in get_args(option.type) or (option.type,) if kind is not type(None))


def choices(option):
    """The values that an option may take, or None if they are numbers or text."""
    if kind(option) is bool:
        return [False, True]
    return [choice.value for choice in kind(option)] if issubclass(kind(option), enum.Enum) else None


def configure(config, values):
    """A mixer's Config from values given as the command line, hydra or a benchmark give them.

    Args:
        config: the dataclass.
        values: dict from names of its fields to values; what is left out has its default.

    Raises:
        UsageError: a value is not one that its option may take.
    """
    checked = {}
    for field_ in fields(config):
        if field_.name in values:
            checked[field_.name] = _checked(field_, values[field_.name])
    return config(**checked)


def _checked(field_, value):
    name, allowed = flag(field_.name), choices(field_)
    if value is None:
        return None
    if kind(field_) is bool:
        if not isinstance(value, bool):
            raise UsageError(f"{name} {value}: this is a switch, it takes no value.")
        return value
    if allowed:
        if str(value) not in allowed:
            raise UsageError(f"{name} {value}: choose one of {', '.join(allowed)}.")
        return str(value)
    if isinstance(value, bool) or not re.fullmatch(r"-?\d{1,9}", str(value)):
        digits = " of at most 9 digits" if re.fullmatch(r"-?\d+", str(value)) else ""
        example = field_.metadata.get("example", field_.default)
        raise UsageError(f"{name} {value}: give a whole number{digits}, such as {example}.")
    return int(value)


def check_offsets(name: str, distance: int) -> None:
    """Refuse to tell more than :data:`MOST_OFFSETS` offsets to one side apart.

    Args:
        name: of the option, for the error's text.
        distance: its value.

    Raises:
        UsageError: it is more.
    """
    if distance > MOST_OFFSETS:
        raise UsageError(f"{name} {distance}: give at most {MOST_OFFSETS}, such as 16.")


@dataclass
class ClipDistance:
    """The distance beyond which all offsets share one vector or weight."""

    clip_distance: int = option(
        "K: relative positions beyond ±K share one vector or weight; 4,8,16,... gives every layer its own "
        "(PosNet Eq. 10)",
        default=16,
        per_layer=True,
        reach=True,
    )

    def __post_init__(self):
        if self.clip_distance < 1:
            raise UsageError(
                f"--clip-distance {self.clip_distance}: K must be at least 1, or there is no relative position left. "
                "Choose 1 or more, such as 16."
            )
        check_offsets("--clip-distance", self.clip_distance)
