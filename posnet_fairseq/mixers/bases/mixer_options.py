"""Options that several mixers read, declared once, and their checks."""

import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from posnet_fairseq.shared.errors import UsageError, flag

# Beyond it a sentence would need more tokens than any model reads; tables grow with it.
MOST_OFFSETS = 2**16


def option(help_text: str, default: Any, **metadata: Any) -> Any:
    """A field of a mixer's Config. `default` holds where neither the user nor the size says otherwise."""
    return field(default=default, metadata={"help": help_text, **metadata})


def plain_type(option: Field) -> Any:
    """The type of an option's values, a class or a Literal, without the None that it may also be."""
    annotation: Any = option.type
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(kind for kind in get_args(annotation) if kind is not type(None))
    return annotation


def choices(option: Field) -> list[Any] | None:
    """The values that an option may take, or None if they are numbers or text."""
    kind = plain_type(option)
    if kind is bool:
        return [False, True]
    return list(get_args(kind)) if get_origin(kind) is Literal else None


def configure(config: type, values: Mapping[str, Any]) -> Any:
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


def _checked(field_: Field, value: Any) -> Any:
    name, allowed = flag(field_.name), choices(field_)
    if value is None and (field_.default is None or plain_type(field_) is not field_.type):
        return None
    if plain_type(field_) is bool:
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

    def __post_init__(self) -> None:
        if self.clip_distance < 1:
            raise UsageError(
                f"--clip-distance {self.clip_distance}: K must be at least 1, or there is no relative position left. "
                "Choose 1 or more, such as 16."
            )
        check_offsets("--clip-distance", self.clip_distance)
